module build/flannel-cni

go 1.26.0

require github.com/containernetworking/plugins v0.9.1 // indirect
