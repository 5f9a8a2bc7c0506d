"""The development cluster: a real Kubernetes for demo, tests and people, on this machine and without Docker.

Standard library only, so that it runs on a bare python3 before anything is installed. Its commands:

    dev/cluster   up, down, status, kubectl, exec, load, build: the cluster of this checkout     cli
    dev/image     pack an image of this checkout without a container engine and load it          image_cli
    dev/setup     check that the machine has what is needed, install it where that is possible   setup_cli

A cluster is one of three providers: an existing one (`existing`), kind's (`kind`) or the local one (`local`), which
runs the components of one self-built binary (`binary`, `components`, `configs`, `pki`) in namespaces and cgroups of
its own (`sandbox`, `network`, `cgroups`, `processes`) under paths named after the checkout (`layout`, `locking`).
Images are tar archives (`archive`) out of this machine's Python (`images`, `python_layer`) or around somebody else's
program (`program_image`), imported layer by layer (`image_import`).

What goes wrong is a ClusterError (`errors`): one sentence with its remedy, which the commands print as it is.
"""
