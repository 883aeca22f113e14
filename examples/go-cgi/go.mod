module example/go-cgi

go 1.24
