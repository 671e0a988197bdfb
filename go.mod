module github.com/orbit-run/orbit

go 1.26
