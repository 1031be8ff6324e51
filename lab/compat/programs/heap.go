// Maps and slices under Go's collector, changed and checked.
package main

import (
	"fmt"
	"os"
	"strconv"
)

type node struct {
	left, right *node
	value       int
}

func build(depth, value int) *node {
	if depth == 0 {
		return &node{value: value}
	}
	return &node{build(depth-1, 2*value), build(depth-1, 2*value+1), value}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.value + 31*n.left.sum() + 37*n.right.sum()
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	kept := map[int]string{}
	seed, sum := uint64(1), 0
	for i := 0; i < count; i++ {
		seed = seed*6364136223846793005 + 1442695040888963407
		kept[int(seed>>33)%count] = "value " + strconv.Itoa(i)
	}
	tree := build(20, 1)
	for round := 0; round < 4; round++ {
		sum = sum*31 + tree.sum() + build(16, round).sum()
	}
	for i := 0; i < count; i++ {
		sum = sum*31 + len(kept[i])
	}
	fmt.Println(len(kept), sum)
}
