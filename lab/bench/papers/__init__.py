"""One module a paper: its workloads in today's form, the configurations, the published numbers and what must come out in shape.

`engine` runs one program under one scheme, `shape` compares, `render` writes, `cli` puts them together. A paper's module has

NAME, TITLE, SOURCE   short name, title, where it was published
SETTING               what was scaled, and how
cells(ctx)            the runs: a list of `engine.Cell`
derive(cells)         numbers by name, such as "speedup(fft)", from the summaries of the cells
PUBLISHED             the published numbers under the same names; a pair is a range
TABLES, STATEMENTS    what to print, and what must hold
WORKLOADS, DEVIATIONS what stands for what, and why something differs
EXPLAINED             what is known about a statement that does not hold, by its name
"""
