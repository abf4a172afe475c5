#!/bin/sh
# Write the sandbox's root file system to the tar $1, from Debian packages alone. Needs mmdebstrap, and root or user
# namespaces. Two runs give the same bytes while the archive is unchanged. Keep it like the Dockerfile.
set -eu
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-1700000000}"
packages=bash,coreutils,python3,git,jq,ripgrep,curl,ca-certificates,procps,less,file,patch,diffutils,findutils,gawk
packages=$packages,make,xz-utils,unzip,tini
# `essential` has no useradd: the user is written by hand. The mount on /workspace takes its mode over.
exec mmdebstrap --variant=essential --include="$packages" \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/lintian/*' --dpkgopt='path-exclude=/usr/share/bash-completion/*' \
    --customize-hook='echo "sandbox:x:1000:1000::/workspace:/bin/bash" >>"$1/etc/passwd"' \
    --customize-hook='echo "sandbox:x:1000:" >>"$1/etc/group"' \
    --customize-hook='mkdir -p "$1/workspace" && chmod 777 "$1/workspace"' \
    --customize-hook='rm -rf "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/var/log/* "$1"/usr/share/zoneinfo/right' \
    --customize-hook='rm -rf "$1"/usr/lib/python3/dist-packages/__pycache__ "$1"/usr/share/gitweb' \
    --customize-hook='find "$1/usr/lib" -name "*.pyc" -delete' \
    --customize-hook='find "$1" -xdev -perm /6000 -type f -exec chmod a-s {} +' \
    bookworm "$1"
