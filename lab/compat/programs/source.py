"""source.py c|c++|rust|java COUNT: a program of many functions."""
import sys

language, count = sys.argv[1], int(sys.argv[2])
if language in ("c", "c++"):
    if language == "c++":
        print("#include <map>\n#include <string>\n#include <vector>\n#include <algorithm>")
    else:
        print("#include <stdio.h>")
    for i in range(count):
        if language == "c++":
            print(f"struct S{i} {{ std::map<std::string, std::vector<int>> all; int sum(int x) {{ all[\"k\"].push_back(x + {i}); "
                  f"std::sort(all[\"k\"].begin(), all[\"k\"].end()); return all[\"k\"].front(); }} }};\nint f{i}(int x) {{ S{i} s; return s.sum(x); }}")
        else:
            print(f"int f{i}(int x, int *p) {{ int s = {i}; for (int k = 0; k < x; k++) {{ s += p[k] * {i % 97 + 1}; "
                  f"if (s & {i % 31 + 1}) s ^= k << {i % 7}; else p[k] = s; }} switch (s & 7) {{ case 0: return s + 1; case 3: return x; default: return s * 3; }} }}")
elif language == "rust":
    for i in range(count):
        print(f"pub fn f{i}(x: &mut Vec<u64>) -> u64 {{ let s: u64 = x.iter().map(|v| v.wrapping_mul({i + 3})).filter(|v| v % {i % 31 + 2} != 0)"
              f".fold({i}, |a, b| a.wrapping_add(b)); x.push(s); s }}")
    print("fn main() { let mut x = vec![1, 2, 3]; let mut s = 0u64;")
    for i in range(count):
        print(f"s = s.wrapping_add(f{i}(&mut x)); if x.len() > 9 {{ x.truncate(3); }}")
    print('println!("{}", s); }')
else:
    for i in range(count):
        print(f"class C{i} {{ java.util.List<String> all = new java.util.ArrayList<>(); int f(int x) {{ all.add(\"t\" + x); "
              f"return all.stream().map(s -> s + {i}).mapToInt(String::length).sum() + (x > {i} ? new C{max(0, i - 1)}().f(x - 1) : 0); }} }}")
