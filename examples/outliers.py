#!/usr/bin/env python3
"""Finds the requests in a web server's log that took much longer than others for the same page.

Usage: outliers.py LOG

The whole log is in memory: one pass over it to know what is usual for each page, another one to compare.
"""
import math
import re
import sys

# time client method page bytes ms status host
REQUEST = re.compile(rb"^\S+ \S+ \S+ (\S+) \S+ (\d+) \S+ \S+$", re.MULTILINE)


def usual_times(log):
    """For each page, the time above which a request is an outlier: the mean and three standard deviations, ms."""
    sums = {}
    for request in REQUEST.finditer(log):
        page, ms = request[1], int(request[2])
        of_page = sums.setdefault(page, [0, 0, 0])
        of_page[0] += 1
        of_page[1] += ms
        of_page[2] += ms * ms
    limits = {}
    for page, (count, total, squares) in sums.items():
        mean = total / count
        limits[page] = mean + 3 * math.sqrt(max(squares / count - mean * mean, 0))
    return limits


def main():
    with open(sys.argv[1], "rb") as file:
        log = file.read()
    limits = usual_times(log)
    found = 0
    for request in REQUEST.finditer(log):
        if int(request[2]) > limits[request[1]]:
            found += 1
            print(request[0].decode())
    print(f"{found} requests took much longer than usual for their page")


if __name__ == "__main__":
    main()
