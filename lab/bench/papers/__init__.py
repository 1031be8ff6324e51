"""One module a paper: its workloads in today's form, the configurations, the published numbers and what must come out in shape.

`engine` runs one program under one scheme, `shape` compares, `render` writes, `cli` puts them together. A paper's module has

NAME, TITLE, SOURCE   short name, title, where it was published
SETTING               what was scaled, and how
cells(ctx)            the runs: a list of `engine.Cell`
derive(cells)         numbers by name, such as "speedup(fft)", from the summaries of the cells
own(numbers)          numbers of the paper's names, as lab/published and lab/papers have them, by these names
PUBLISHED             the published numbers under the same names; a pair is a range
TABLES, STATEMENTS    what to print, and what must hold
WORKLOADS, DEVIATIONS what stands for what, and why something differs
EXPLAINED             what is known of the reasons, by the name of a statement; {NAME} in it is a number of the result
FIGURE, DISCUSSION    what the page begins with: the main result at a glance, and a paragraph about it
"""
