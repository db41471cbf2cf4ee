/** Checks the certificate and its key for problems that make browsers and SDKs refuse them. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../../shared/terminal/check-result.ts';
import { errorText } from '../../../../shared/text/error-text.ts';

const DAY_MS = 86_400_000;
/**
 * Warns this many days before the certificate's end: certbot renews 30 days before it, so at 14 days it has a problem.
 */
const SOON_DAYS = 14;
const PEM = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

export async function checkTls(
  files: { cert: string; key: string },
  publicUrl: string | undefined,
  nowMs: number,
): Promise<CheckResult[]> {
  const what = 'TLS';
  const [cert, key] = await Promise.all([files.cert, files.key].map((file) => readFile(file).catch(() => undefined)));
  if (cert === undefined || key === undefined) {
    const file = cert === undefined ? files.cert : files.key;
    return [
      checkFailed(what, `${file} cannot be read`, 'Check the path; the gateway’s user must be allowed to read it.'),
    ];
  }
  try {
    const chain = (cert.toString('latin1').match(PEM) ?? []).map((pem) => new X509Certificate(pem));
    const [leaf] = chain;
    if (leaf === undefined)
      return [
        checkFailed(
          what,
          `${files.cert} contains no certificate`,
          'It must be a PEM file with the certificate, then its chain.',
        ),
      ];
    const findings = [fits(leaf, key, files), ends(leaf, nowMs), ...names(leaf, publicUrl), ...follows(chain)];
    createSecureContext({ cert, key });
    return [...findings, ...(await readable(files.key))];
  } catch (error) {
    const reason = errorText(error);
    return [
      checkFailed(
        what,
        `${files.cert} and ${files.key} are not usable: ${reason}`,
        'They must be PEM files of one certificate and its key.',
      ),
    ];
  }
}

function fits(leaf: X509Certificate, key: Buffer, files: { cert: string; key: string }): CheckResult {
  if (leaf.checkPrivateKey(createPrivateKey(key))) return checkPassed('TLS key', 'belongs to the certificate');
  return checkFailed('TLS key', `${files.key} is not the key of ${files.cert}`, 'Take both from the same renewal.');
}

function ends(leaf: X509Certificate, nowMs: number): CheckResult {
  const [from, until] = [Date.parse(leaf.validFrom), Date.parse(leaf.validTo)];
  const days = Math.floor((until - nowMs) / DAY_MS);
  const fix = 'Renew it, then run: systemctl reload otela-gateway.';
  if (until < nowMs) return checkFailed('TLS certificate', `ended ${new Date(until).toISOString()}`, fix);
  if (from > nowMs) return checkFailed('TLS certificate', `begins ${new Date(from).toISOString()}`, 'Check the clock.');
  return days < SOON_DAYS
    ? checkWarning('TLS certificate', `expires in ${days} days`, fix)
    : checkPassed('TLS certificate', `is valid for ${days} more days`);
}

function names(leaf: X509Certificate, publicUrl: string | undefined): CheckResult[] {
  const altNames = leaf.subjectAltName ?? '';
  if (publicUrl === undefined || !URL.canParse(publicUrl)) return [checkPassed('TLS names', altNames || 'none')];
  const host = new URL(publicUrl).hostname.replace(/^\[|\]$/g, '');
  const fits = isIP(host) === 0 ? leaf.checkHost(host) : leaf.checkIP(host);
  if (fits !== undefined) return [checkPassed('TLS names', `${host} is among ${altNames}`)];
  return [
    checkFailed(
      'TLS names',
      `${host} is not among ${altNames || 'its names'}`,
      'Get a certificate for the name that clients use.',
    ),
  ];
}

/** Checks that the file contains the intermediate certificates. Browsers fetch missing ones; SDKs and agents do not. */
function follows(chain: readonly X509Certificate[]): CheckResult[] {
  const [leaf, next] = chain;
  if (leaf === undefined || leaf.subject === leaf.issuer)
    return [
      checkWarning(
        'TLS chain',
        'is self-signed: clients must be configured to trust it',
        'Set NODE_EXTRA_CA_CERTS for agents, or use a public CA.',
      ),
    ];
  if (next === undefined)
    return [
      checkWarning(
        'TLS chain',
        'contains only the certificate',
        'Use the full chain (certbot: fullchain.pem): without it, SDKs reject the certificate.',
      ),
    ];
  if (leaf.checkIssued(next)) return [];
  return [
    checkFailed(
      'TLS chain',
      'the second certificate did not issue the first',
      'Put the certificate first, then its issuer, and so on.',
    ),
  ];
}

async function readable(file: string): Promise<CheckResult[]> {
  const { mode } = await stat(file);
  return (mode & 0o007) === 0
    ? []
    : [checkWarning('TLS key', `all users of this machine can read ${file}`, `chmod o-rwx ${file}`)];
}
