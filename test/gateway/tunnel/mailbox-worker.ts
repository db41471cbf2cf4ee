/** An object that answers what is posted to it, and a Worker that posts what it is asked: each touches what only its own context may. */
import { DurableObject } from 'cloudflare:workers';
import type { AttemptRequest } from '../../../gateway/tunnel/attempt.ts';
import { Letter, Mailbox, mailboxOf } from '../../../gateway/tunnel/mailbox.ts';

const encoder = new TextEncoder();

export class Answering extends DurableObject {
  open(): void {
    setInterval(() => {}, 1_000); // as its socket does for a tunnel's object: without anything to wait for it would be asleep
    void new Mailbox('answering').serve((letter) => {
      this.ctx.storage.sql.exec('SELECT 1');
      letter.answer({ kind: 'failure', code: 'failed', message: new TextDecoder().decode(letter.body) });
    });
  }
}

/** A body of the request's own context: the runtime does not let another context read it. */
export default {
  async fetch(request: Request, env: { ANSWERING: DurableObjectNamespace<Answering> }): Promise<Response> {
    if (new URL(request.url).pathname === '/open') {
      await env.ANSWERING.getByName('one').open();
      return new Response('open');
    }
    const copy = request.clone();
    const letter = new Letter({} as AttemptRequest, encoder.encode(await request.text()));
    const result = await mailboxOf('answering')?.post(letter, () => Promise.resolve(false));
    const own = await copy.text();
    return new Response(result?.kind === 'failure' && result.message === own ? own : 'mixed up', { status: 200 });
  },
};
