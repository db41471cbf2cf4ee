/** Recipients of mail as targets of events. */
import * as z from 'zod';
import { printable } from '../../shared/terminal/printable.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import type { Env } from '../env.ts';
import type { MailSettings } from '../settings/notification-settings.ts';
import type { EventMessage, EventTarget } from './event-target.ts';

export interface Mail {
  from: string;
  to: string;
  subject: string;
  text: string;
  /** The same at each try, so that mail servers and readers drop a message that arrives twice. */
  messageId: string;
}

/** Hands mail to a server. On Cloudflare there is none. */
export interface Mailer {
  /** @throws Error if the server did not accept it */
  send(mail: Mail): Promise<void>;
}

const eventSchema = z.object({
  type: z.string(),
  timestamp: z.string(),
  data: z.record(z.string(), z.union([z.string(), z.number(), z.null()])),
});

export function mailTarget({ MAILER }: Pick<Env, 'MAILER'>, { from, events }: MailSettings, to: string): EventTarget {
  return {
    id: `mailto:${to}`,
    label: `the mail server, for an address at ${domainOf(to)},`,
    events,
    send: (message) =>
      MAILER === undefined
        ? Promise.resolve('SMTP_URL is not set')
        : MAILER.send(mailOf(message, from, to)).then(() => undefined, errorText),
  };
}

function mailOf({ id, body }: EventMessage, from: string, to: string): Mail {
  const { type, timestamp, data } = eventSchema.parse(parseJson(body));
  // Names of models come from people, and may contain line breaks.
  const lines = Object.entries({ event: type, time: timestamp, ...data }).map(([name, value]) =>
    printable(`${name}: ${value ?? '-'}`),
  );
  const messageId = `<${id.replace(/[^\w./-]/g, '_')}@${domainOf(from)}>`;
  return { from, to, subject: `OpenTela: ${type}`, text: `${lines.join('\n')}\n`, messageId };
}

function domainOf(address: string): string {
  return address.slice(address.lastIndexOf('@') + 1);
}
