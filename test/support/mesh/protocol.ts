/**
 * Messages between a process of members and its parent, over Node's IPC. Bytes are base64, times are ns of
 * CLOCK_MONOTONIC.
 */
import * as z from 'zod';

const memberSchema = z.object({ seed: z.string(), ticket: z.string(), host: z.string() });
export type MemberSpec = z.infer<typeof memberSchema>;

export const commandSchema = z.discriminatedUnion('do', [
  z.object({
    do: z.literal('open'),
    issuer: z.string(),
    members: z.array(memberSchema),
    listenHost: z.string().optional(),
    peers: z.array(z.string()),
    gateways: z.array(z.object({ id: z.string(), url: z.string() })),
    seed: z.number(),
  }),
  z.object({ do: z.literal('publish'), index: z.number(), state: z.enum(['SERVING', 'DOWN', 'LEFT']) }),
  /** Ends one session and begins another. */
  z.object({ do: z.literal('again'), index: z.number(), member: memberSchema }),
  /** Asks for the sightings since the last report. */
  z.object({ do: z.literal('report') }),
  z.object({ do: z.literal('view'), index: z.number() }),
  /** Answered without any action. */
  z.object({ do: z.literal('ping') }),
  z.object({ do: z.literal('gateways'), gateways: z.array(z.object({ id: z.string(), url: z.string() })) }),
]);
export type Command = z.infer<typeof commandSchema>;

const sightingSchema = z.object({
  /** Index of the observing member in the process. */
  index: z.number(),
  session: z.string(),
  state: z.string(),
  version: z.number(),
  liveness: z.string(),
  at: z.number(),
});
export type Sighting = z.infer<typeof sightingSchema>;

const viewSchema = z.object({
  session: z.string(),
  state: z.string(),
  version: z.number(),
  liveness: z.string(),
  cluster: z.string(),
});

export const replySchema = z.object({
  id: z.number(),
  opened: z.array(z.object({ session: z.string(), addresses: z.array(z.string()) })).optional(),
  published: z.object({ session: z.string(), version: z.number(), at: z.number() }).optional(),
  sightings: z.array(sightingSchema).optional(),
  view: z.array(viewSchema).optional(),
  channels: z.array(z.number()).optional(),
  memoryMiB: z.number().optional(),
  /** Gossip that all members of this process have sent, including members that left. */
  sent: z.object({ messages: z.number(), bytes: z.number() }).optional(),
  ended: z.array(z.string()).optional(),
});
export type Reply = z.infer<typeof replySchema>;

/** A process's question that a gateway would get: does this session answer? */
export const questionSchema = z.object({ question: z.number(), session: z.string() });
export const answerSchema = z.object({ answer: z.number(), verdict: z.enum(['alive', 'silent', 'unknown']) });
