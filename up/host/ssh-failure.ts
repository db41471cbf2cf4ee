/** Explains why OpenSSH itself failed. It exits with 255 then, and its last lines say why. */
import { UpError } from '../up-error.ts';

/** OpenSSH's exit code for its own failures: ssh(1), EXIT STATUS. */
export const SSH_FAILED = 255;

interface Explanation {
  seen: RegExp;
  happened: (host: string) => string;
  wayOn: (host: string) => string;
}

const EXPLANATIONS: readonly Explanation[] = [
  {
    seen: /has changed and you have requested strict checking|REMOTE HOST IDENTIFICATION HAS CHANGED/,
    happened: (host) => `${host} has another host key than before, so nothing was sent to it.`,
    wayOn: (host) =>
      `Ask your site whether it changed the key. If it did: ssh-keygen -R ${hostName(host)}, then run otela up again. If not, another machine may answer in its place.`,
  },
  {
    seen: /Host key verification failed/,
    happened: (host) => `The host key of ${host} is not known, and was not confirmed.`,
    wayOn: (host) => `Run ssh ${host} once in a terminal and compare the fingerprint with your site's.`,
  },
  {
    seen: /Permission denied|Too many authentication failures/,
    happened: (host) => `${host} did not accept the login.`,
    wayOn: (host) =>
      `Check that ssh ${host} works in this terminal. otela uses the same configuration, agent and keys.`,
  },
  {
    seen: /Could not resolve hostname|Name or service not known/,
    happened: (host) => `There is no machine with the name in ${host}.`,
    wayOn: () =>
      'Check --host: it is what you write after ssh, such as me@login.example.org, or a Host of ~/.ssh/config.',
  },
  {
    seen: /Connection refused|timed out|No route to host|Network is unreachable|Connection (?:closed|reset)/,
    happened: (host) => `${host} does not answer.`,
    wayOn: (host) => `Check the network, or whether your site needs a VPN or a jump host: ssh ${host} must work.`,
  },
  {
    seen: /not available|only allowed|restricted|nologin/i,
    happened: (host) => `${host} allows no commands.`,
    wayOn: () => 'otela needs a login node that runs commands. Ask your site for its name.',
  },
];

function hostName(host: string): string {
  return host.replace(/^.*@/, '');
}

/** @param errors the last lines of ssh's stderr */
export function sshFailure(host: string, errors: string): UpError {
  const found = EXPLANATIONS.find(({ seen }) => seen.test(errors));
  const said = errors.trim().split('\n').slice(-3).join('\n');
  if (found === undefined)
    return new UpError(`The connection to ${host} failed: ${said}`, `Check that ssh ${host} works in this terminal.`);
  return new UpError(`${found.happened(host)} ssh says: ${said}`, found.wayOn(host));
}
