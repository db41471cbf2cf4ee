/** Hands mail to the SMTP server in SMTP_URL. */
import type { Mailer } from '../../notifications/mail-target.ts';

/** Maximum wait for each step of the protocol. */
const STEP_MS = 10_000;
const PORTS = { smtps: 465, withPassword: 587, relay: 25 };

/**
 * @param url `smtp://` or `smtps://`, with user and password if the server needs them
 * @param ca certificate of the server's authority; absent: those that Node trusts
 */
export function smtpMailer(url: string, ca?: string): Mailer {
  const options = { ...smtpOptions(url), ...(ca !== undefined && { tls: { ca } }) };
  return {
    async send(mail) {
      // Imported here, so that a gateway without mail does not load it.
      const { createTransport } = await import('nodemailer');
      const transport = createTransport(options);
      try {
        await transport.sendMail({ ...mail, headers: { 'auto-submitted': 'auto-generated' } });
      } finally {
        transport.close();
      }
    },
  };
}

function smtpOptions(url: string) {
  const { protocol, hostname, port, username, password } = new URL(url);
  const secure = protocol === 'smtps:';
  const hasPassword = username !== '';
  const isLocal = /^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname);
  return {
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port) || (secure ? PORTS.smtps : hasPassword ? PORTS.withPassword : PORTS.relay),
    secure,
    ...(hasPassword && { auth: { user: decodeURIComponent(username), pass: decodeURIComponent(password) } }),
    // A password is never sent in plain text.
    requireTLS: hasPassword,
    // The certificate of a relay on this machine is often unusable, and protects nothing.
    ignoreTLS: isLocal && !hasPassword,
    connectionTimeout: STEP_MS,
    greetingTimeout: STEP_MS,
    socketTimeout: STEP_MS,
    dnsTimeout: STEP_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  };
}
