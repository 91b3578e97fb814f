#!/usr/bin/env bash
# Makes a real SELinux policy, with the tools that judge labels by it, below a
# directory: tests/selinux-policy.sh DIR. Nothing is installed, and nothing
# outside DIR is written: the packages' own scripts would set up SELinux on
# this machine. Needs Debian; takes half a minute and 60 MB the first time.
set -euo pipefail

dir=$(realpath -m -- "${1:?usage: selinux-policy.sh DIR}")
if [[ -e $dir/done ]]; then
    exit 0
fi
rm -rf -- "$dir"
mkdir -p "$dir/packages" "$dir/tools" "$dir/root/etc/selinux/default/policy" "$dir/root/var/lib/selinux/default"

# apt-get download writes to the working directory.
cd "$dir/packages"
apt-get download selinux-utils policycoreutils selinux-policy-default
for package in *.deb; do
    dpkg-deb -x "$package" "$dir/tools"
done
cp -r "$dir/tools/etc/selinux/." "$dir/root/etc/selinux/"
cat >"$dir/root/etc/selinux/semanage.conf" <<END
module-store = direct
expand-check = 0
compiler-directory = $dir/tools/usr/libexec/selinux/hll
[setfiles]
path = /bin/true
[end]
[sefcontext_compile]
path = /bin/true
[end]
END

# The package has modules only; which line of file_contexts comes last is decided when they are linked.
modules=$dir/tools/usr/share/selinux/default
install=()
for module in $(<"$modules/.modules"); do
    install+=(-i "$modules/$module.pp.bz2")
done
"$dir/tools/usr/sbin/semodule" --noreload -N -X 100 -s default -p "$dir/root" "${install[@]}"

mv "$dir/root/etc/selinux/default" "$dir/default"
rm -rf "$dir/packages" "$dir/root" "$modules"
touch "$dir/done"
