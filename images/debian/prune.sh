#!/usr/bin/env bash
# Promises: in the root it runs in nothing is left that installs packages, gains privileges or only documents:
# no apt, dpkg, perl, mount or login tools, no setuid or setgid file, no locale but C.UTF-8.
# Runs last inside a root that is being made (chroot or docker build), and says so with PRUNE_THIS_ROOT=yes.
set -euo pipefail
if [[ ${PRUNE_THIS_ROOT:-} != yes ]]; then
  echo 'prune.sh: will not prune the running system' >&2
  exit 2
fi
cd /

# A package is dropped by removing the files dpkg says it owns; never what leads to a directory (/lib is a link).
drop=(adduser apt bsdutils debconf debian-archive-keyring debian-keyring dpkg gcc-12-base gpgv init-system-helpers
  libperl5.36 login logsave lsb-base mount passwd perl perl-base perl-modules-5.36 procps sysvinit-utils usr-is-merged usrmerge util-linux util-linux-extra
  libapt-pkg6.0 libpam-modules libpam-modules-bin libpam-runtime libgnutls30)
for package in "${drop[@]}"; do
  for list in "var/lib/dpkg/info/$package.list" "var/lib/dpkg/info/$package:"*.list; do
    [[ -f $list ]] || continue
    while IFS= read -r path; do
      [[ -d $path ]] || printf '%s\0' "$path"
    done <"$list" | xargs -0 rm -f
  done
done

multiarch=$(basename "$(dirname "$(find usr/lib -maxdepth 2 -name 'libc.so.6' | head -n 1)")")
rm -rf usr/share/{doc,doc-base,man,info,locale,lintian,bash-completion,bug,debconf,perl5,pam,pam-configs,menu,base-files,base-passwd}
rm -rf usr/libexec/dpkg usr/local/share/man usr/share/{dict,dpkg,perl,util-linux,polkit-1,keyrings,common-licenses,applications,pixmaps,binfmts,gdb}
rm -rf usr/games usr/src usr/sbin/{installkernel,update-passwd} usr/lib/{apt,dpkg,lsb,udev,usrmerge,binfmt.d,valgrind,systemd,init,tmpfiles.d,sysusers.d,locale/locale-archive,pam.d} lib/systemd
rm -rf "usr/lib/$multiarch"/{gconv,perl-base,perl,security}
find etc/apt -type f ! -name 00mmdebstrap -delete  # that one mmdebstrap takes away itself, and must find
rm -rf etc/{dpkg,cron.d,cron.daily,default,init.d,kernel,logrotate.d,pam.d,perl,security,skel,systemd,ufw} etc/rc?.d etc/pam.conf
rm -rf var/{backups,cache,mail,local,opt,spool} var/lib/{apt,dpkg,pam,systemd,misc,private} var/log boot media mnt srv
mkdir -p mnt var/cache var/log
rm -f tmp/{finish,prune}.sh  # the rest of /tmp is mmdebstrap's: without its apt.conf there, apt would clean the host's lists

# What is left of dangling links (alternatives of dropped programs), and of privilege bits.
find etc usr -xtype l ! -path 'etc/mtab' -delete
find . -xdev -perm /6000 -exec chmod a-s {} +
chmod 1777 tmp var/tmp
rm -f etc/{passwd,group,shadow,gshadow,subuid,subgid}- etc/{gshadow,subuid,subgid,machine-id}
rm -f etc/{hostname,resolv.conf} 2>/dev/null || true  # docker build mounts its own there

# Accounts without a password to guess, in a file only root reads.
sed -E 's/^([^:]+):.*/\1:*:19000:0:99999:7:::/' etc/passwd >etc/shadow
chmod 600 etc/shadow
