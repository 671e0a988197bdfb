module github.com/orbit-run/orbit/sdk/go

go 1.26.0
