#!/usr/bin/env bash
# Promises: below the root directory $1 nothing is left that installs packages, gains privileges or only
# documents: no apt, dpkg, perl, mount or login tools, no setuid or setgid file, no locale but C.UTF-8.
# Runs last while a root is being made (from outside, or inside it with $1 = /).
set -euo pipefail
root=${1%/}
cd "$root/"

# A package is dropped by removing what dpkg says it owns (files only: directories may be shared).
drop=(adduser apt bsdutils debconf debian-archive-keyring debian-keyring dpkg gcc-12-base gpgv init-system-helpers
  login logsave lsb-base mount passwd perl-base procps sysvinit-utils usr-is-merged util-linux util-linux-extra
  libapt-pkg6.0 libpam-modules libpam-modules-bin libpam-runtime libgnutls30)
for package in "${drop[@]}"; do
  for list in "$root/var/lib/dpkg/info/$package.list" "$root/var/lib/dpkg/info/$package:"*.list; do
    [[ -f $list ]] || continue
    while IFS= read -r path; do
      if [[ -L $root$path || -f $root$path ]]; then rm -f "$root$path"; fi
    done <"$list"
  done
done

multiarch=$(basename "$(dirname "$(find usr/lib -maxdepth 2 -name 'libc.so.6' | head -n 1)")")
rm -rf usr/share/{doc,doc-base,man,info,locale,lintian,bash-completion,bug,debconf,perl5,pam,pam-configs,menu,base-files,base-passwd}
rm -rf usr/share/{polkit-1,keyrings,common-licenses,applications,pixmaps,binfmts,gdb}
rm -rf usr/lib/{apt,dpkg,systemd,init,tmpfiles.d,sysusers.d,locale/locale-archive,pam.d} lib/systemd
rm -rf "usr/lib/$multiarch"/{gconv,perl-base,perl,security}
rm -rf etc/{apt,dpkg,cron.d,cron.daily,default,init.d,kernel,logrotate.d,pam.d,perl,security,skel,systemd,ufw} etc/rc?.d etc/pam.conf
rm -rf var/{backups,cache,mail,local,opt,spool} var/lib/{apt,dpkg,pam,systemd,misc,private} var/log boot media mnt srv
mkdir -p mnt var/cache var/log
find tmp run var/tmp -mindepth 1 -delete 2>/dev/null || true

# What is left of dangling links (alternatives of dropped programs), and of privilege bits.
find etc usr -xtype l ! -path 'etc/mtab' -delete
find . -xdev -perm /6000 -exec chmod a-s {} +
chmod 1777 tmp var/tmp
rm -f etc/{passwd,group,shadow,gshadow,subuid,subgid}- etc/{gshadow,subuid,subgid,machine-id,hostname,resolv.conf}

# Accounts without a password to guess, in a file only root reads.
sed -E 's/^([^:]+):.*/\1:*:19000:0:99999:7:::/' etc/passwd >etc/shadow
chmod 600 etc/shadow
