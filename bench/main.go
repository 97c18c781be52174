// Command bench measures what the modules of this repository cost: it puts a Caddy with them
// and a Caddy without under the same load, by turns, and prints the ratios.
//
//	bench [-run <regexp>] [-times <n>] [-profile <dir>] [-list]
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/llmlimits/caddy-llm-limits/bench/server"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleProvider:
			exit(server.Provider(os.Stdin, os.Stdout))
		case roleCaddy:
			exit(server.Caddy(os.Args[2], os.Stdin, os.Stdout))
		}
	}
	run := flag.String("run", "", "only scenarios whose names match this `regexp`")
	times := flag.Float64("times", 1, "this many times the usual number of turns")
	profile := flag.String("profile", "", "write processor profiles of both servers to this `directory`")
	list := flag.Bool("list", false, "print the names of the scenarios")
	flag.Parse()
	only, err := regexp.Compile(*run)
	if err != nil || flag.NArg() > 0 || *times <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	var chosen []Scenario
	for _, s := range scenarios {
		if only.MatchString(s.Name) {
			chosen = append(chosen, s)
			if *list {
				fmt.Println(s.Name)
			}
		}
	}
	if *list {
		return
	}
	b := &bench{times: *times, profiles: *profile}
	exit(b.run(chosen, os.Stdout))
}

// exit ends the process.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err) // Caddy takes over package log
		os.Exit(1)
	}
	os.Exit(0)
}
