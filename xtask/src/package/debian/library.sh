# What a machine is like with the packages of the C library, and after them. Runs as root on a copy of a
# machine, with both packages in /packages; ends with the first thing that is not so.

# Some machines leave documents out when they install.
dpkg-deb --extract /packages/development.deb /packages/files
examples=/packages/files/usr/share/doc/libnearflash-dev/examples

that() {
    said=$1
    shift
    "$@" || { echo "not so: $said"; exit 1; }
}
put() { dpkg --force-unsafe-io --install "/packages/$1.deb" >/packages/log 2>&1 ||
    { cat /packages/log; exit 1; }; }
is_known() { ldconfig -p | grep -q 'libnearflash\.so\.0 '; }
is_gone() { ! is_known && [ -z "$(find /usr/lib /usr/include /usr/share/man -name '*nearflash*')" ]; }
says_connect() { "$1" reflex://127.0.0.1:1 2>&1 | grep -q '^connect: '; }

put runtime
that "the linker of programs knows the library" is_known
put development
cc -Wall -Werror -o /packages/program "$examples/blocking.c" $(pkg-config --cflags --libs nearflash)
that "a program finds the library" says_connect /packages/program
that "the manual has a page for each function" [ -e /packages/files/usr/share/man/man3/nf_open.3 ]

dpkg --force-unsafe-io --purge libnearflash-dev >/packages/log 2>&1
that "a program runs without the development files" says_connect /packages/program
dpkg --force-unsafe-io --purge libnearflash0 >/packages/log 2>&1
that "a purge leaves nothing" is_gone
