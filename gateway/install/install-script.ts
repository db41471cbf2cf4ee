/** The script of `curl -fsSL https://GATEWAY/install | sh`, which installs the agent. For POSIX shells such as dash. */
import { type Platform, singleFileName } from '../../shared/release/release-manifest.ts';

export interface InstallableFile {
  bytes: number;
  /** SHA-256 in hex. */
  sha256: string;
}

export interface InstallScriptOptions {
  /** The gateway's URL without a path at its end; it matches ORIGIN. */
  gateway: string;
  agents: ReadonlyMap<Platform, InstallableFile>;
  /** Names of the files that prove the signature of the release; empty: it is not signed. */
  proofs: readonly string[];
}

/** URLs that are safe between single quotes in a shell. A host name of a URL may contain quotes and `$`. */
export const ORIGIN = /^https?:\/\/[A-Za-z0-9.:[\]-]{1,255}(?:\/[A-Za-z0-9._~/-]{0,255})?$/;

/** What `uname` prints on each platform. */
const MACHINES: Record<Platform, string> = {
  'linux-x64': 'Linux-x86_64 | Linux-amd64',
  'linux-arm64': 'Linux-aarch64 | Linux-arm64',
};

/**
 * The function `main` is called in the last line, so that a download that breaks off runs nothing.
 * @throws RangeError if the URL is not safe in a script
 */
export function installScript({ gateway, agents, proofs }: InstallScriptOptions): string {
  if (!ORIGIN.test(gateway)) throw new RangeError('the URL cannot be written into a script');
  const cases = [...agents].map(([platform, { sha256 }]) => {
    return `    ${MACHINES[platform]}) file=${singleFileName(platform)} digest=${sha256} ;;`;
  });
  return `#!/bin/sh
# Installs otela-agent for this gateway. It changes nothing outside your home directory.
#   OTELA_DIR    directory of the program; default: ~/.local/share/otela, with a link in ~/.local/bin
#   OTELA_TOKEN  join token; it is written to ~/.otela-token
set -eu

main() {
  gateway='${gateway}'
  case "$(uname -s)-$(uname -m)" in
${cases.join('\n')}
    *) fail "this gateway has no agent for $(uname -s) on $(uname -m)" ;;
  esac
  : "\${HOME:?is not set}"
  directory=\${OTELA_DIR:-$HOME/.local/share/otela}
  mkdir -p "$directory" || fail "cannot create $directory: set OTELA_DIR to another directory"
  part=$directory/.otela-agent.$$
  trap 'rm -f "$part"' EXIT
  trap 'exit 1' HUP INT TERM
  echo "Downloading otela-agent from $gateway"
  get "/install/$file" "$part"
  [ "$(sha256 "$part")" = "$digest" ] || fail 'the downloaded file has another digest: try again'
  chmod 755 "$part"
  version=$("$part" version 2>&1) || fail "otela-agent does not start on this machine. It needs glibc 2.28 or later and
libstdc++, and $directory must allow programs. It said: $version"
  for proof in ${proofs.length === 0 ? "''" : proofs.join(' ')}; do
    [ -z "$proof" ] || get "/install/$proof" "$directory/$proof"
  done
  mv -f "$part" "$directory/otela-agent"
  [ -n "\${OTELA_DIR:-}" ] || link
  configure
  echo "Installed $directory/otela-agent: $version"
  case ":$PATH:" in
    *":\${OTELA_DIR:-$HOME/.local/bin}:"*) ;;
    *) echo "Put it on your PATH: export PATH=\${OTELA_DIR:-$HOME/.local/bin}:\\$PATH" ;;
  esac
  [ -e "$HOME/.otela-token" ] || echo 'Next, write your join token to ~/.otela-token (mode 600).'
  echo 'Check this machine: otela-agent doctor'
}

link() {
  mkdir -p "$HOME/.local/bin"
  ln -sf "$directory/otela-agent" "$HOME/.local/bin/otela-agent"
}

# Keeps files that exist.
configure() {
  if [ -n "\${OTELA_TOKEN:-}" ]; then
    rm -f "$HOME/.otela-token.$$"
    (umask 077 && printf '%s\\n' "$OTELA_TOKEN" > "$HOME/.otela-token.$$")
    mv -f "$HOME/.otela-token.$$" "$HOME/.otela-token"
  fi
  config=\${XDG_CONFIG_HOME:-$HOME/.config}/otela-agent/config
  [ -e "$config" ] && return
  mkdir -p "\${config%/*}"
  printf 'gateway = %s\\ntoken-file = ~/.otela-token\\n' "$gateway" > "$config"
}

get() {
  if command -v curl > /dev/null; then curl -fsSL --retry 3 -o "$2" "$gateway$1"
  elif command -v wget > /dev/null; then wget -q -O "$2" "$gateway$1"
  else fail 'curl or wget is needed'
  fi || fail "cannot download $gateway$1"
}

sha256() {
  if command -v sha256sum > /dev/null; then sha256sum "$1"
  elif command -v shasum > /dev/null; then shasum -a 256 "$1"
  else openssl dgst -sha256 -r "$1"
  fi | cut -d ' ' -f 1
}

fail() {
  echo "otela: $1" >&2
  exit 1
}

main
`;
}
