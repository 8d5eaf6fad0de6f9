# What a machine is like after each step of a package's life. Runs as root on a copy of a machine, with
# two packages in /packages; ends with the first thing that is not so.

config=/etc/nearflash/nearflash.toml
link=/etc/systemd/system/multi-user.target.wants/nearflash.service
unit=/usr/lib/systemd/system/nearflash.service

that() {
    said=$1
    shift
    "$@" || { echo "not so: $said"; exit 1; }
}
no_link() { [ ! -e "$link" ] && [ ! -L "$link" ]; }
nothing_left() { [ -z "$(find /etc/systemd /var/lib/systemd -name '*nearflash*')" ]; }
has_user() { id -u nearflash >/dev/null; }
packed() { dpkg-deb --contents /packages/this.deb | grep " ./$1\$" >/dev/null; }
put() { dpkg --force-unsafe-io --force-confold --install "/packages/$1.deb" >/packages/log 2>&1 ||
    { cat /packages/log; exit 1; }; }
away() { dpkg --force-unsafe-io "$1" nearflash >/packages/log 2>&1 || { cat /packages/log; exit 1; }; }

for file in usr/share/nearflash/grafana/nearflash.json usr/share/doc/nearflash/docs/explanation/security.md \
    usr/share/doc/nearflash/docs/reference/protocols/reflex-v2.md usr/share/man/man1/nearflash.1; do
    that "the package has $file" packed "$file"
done

put this
that "the service has a user" has_user
that "the configuration is root's, readable for the service" \
    [ "$(stat -c %U:%G:%a $config)" = root:nearflash:640 ]
that "the service is not started by itself" no_link

systemctl enable nearflash 2>/dev/null
that "the service is enabled" [ -e "$link" ]
echo '# mine' >>$config
mkdir -p /var/lib/nearflash
echo data >/var/lib/nearflash/volume0

put next
that "an upgrade leaves it enabled" [ -e "$link" ]
that "an upgrade keeps the configuration" grep -q '^# mine' $config
that "an upgrade keeps who may read it" [ "$(stat -c %U:%G:%a $config)" = root:nearflash:640 ]

away --remove
that "no link to a unit that is gone is left" no_link
that "the unit is gone" [ ! -e "$unit" ]
that "a removal keeps the configuration" grep -q '^# mine' $config

put this
that "it comes back as it came first, not enabled" no_link
that "with its configuration" grep -q '^# mine' $config
systemctl enable nearflash 2>/dev/null

rm $config
put next
that "a configuration that was taken away stays away" [ ! -e $config ]

away --purge
that "a purge leaves nothing of the service" nothing_left
that "nor of the configuration" [ ! -e /etc/nearflash ]
that "volumes are data, which stay" grep -q data /var/lib/nearflash/volume0
