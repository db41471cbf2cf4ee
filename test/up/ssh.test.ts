/** Words for OpenSSH's own failures, and hosts that ssh would read as options. */
import { expect, it } from 'vitest';
import { sshHost } from '../../up/host/openssh.ts';
import { loginShell, shellQuoted } from '../../up/host/shell-words.ts';
import { sshFailure } from '../../up/host/ssh-failure.ts';

it.each([
  [
    'Host key for login has changed and you have requested strict checking.\nHost key verification failed.',
    /another host key.*nothing was sent[\s\S]*ssh-keygen -R login.example.org/,
  ],
  [
    'No ED25519 host key is known for login and you have requested strict checking.\nHost key verification failed.',
    /is not known[\s\S]*compare the fingerprint/,
  ],
  [
    'me@login: Permission denied (publickey,keyboard-interactive).',
    /did not accept the login[\s\S]*same configuration, agent and keys/,
  ],
  ['ssh: Could not resolve hostname login: Name or service not known', /no machine with the name[\s\S]*--host/],
  ['ssh: connect to host login port 22: Connection timed out', /does not answer[\s\S]*VPN/],
  ['This account is currently not available.', /allows no commands[\s\S]*login node/],
  ['something new', /failed: something new\nCheck that ssh/],
])('%j', (errors, words) => {
  expect(sshFailure('me@login.example.org', errors).message).toMatch(words);
});

it.each(['-oProxyCommand=x', 'me@login;x', "me'@login", 'a b', ''])('--host %j is refused', (host) => {
  expect(() => sshHost(host)).toThrow(/--host/);
});

it('a script reaches the login shell as one word', () => {
  expect(shellQuoted("it's")).toBe(`'it'\\''s'`);
  expect(loginShell("echo 'a'")).toBe(`exec bash -lc 'echo '\\''a'\\'''`);
});
