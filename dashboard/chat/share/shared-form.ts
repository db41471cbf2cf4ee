/**
 * The form of a shared conversation: its shown branches, and no settings or errors. Another person wrote it, so it is
 * checked when it is read.
 */
import * as z from 'zod/mini';

const TURNS_MAX = 2_000;
export const TITLE_MAX_CHARS = 200;

const attachment = z.discriminatedUnion('kind', [
  // Only pictures inside the conversation: an address would count its readers.
  z.object({
    kind: z.literal('image'),
    name: z.string(),
    url: z.string().check(z.regex(/^data:image\/[a-z]+;base64,/)),
  }),
  z.object({ kind: z.literal('text'), name: z.string(), text: z.string() }),
]);
const sharedSchema = z.object({
  format: z.literal('otela-shared'),
  version: z.literal(1),
  title: z.string().check(z.maxLength(TITLE_MAX_CHARS)),
  threads: z
    .array(
      z.object({
        model: z.string(),
        turns: z
          .array(
            z.object({
              role: z.enum(['user', 'assistant']),
              text: z.string(),
              reasoning: z.optional(z.string()),
              attachments: z.optional(z.array(attachment)),
            }),
          )
          .check(z.maxLength(TURNS_MAX)),
      }),
    )
    .check(z.minLength(1), z.maxLength(2)),
});

export type SharedConversation = z.infer<typeof sharedSchema>;

/** @throws if the text has another form */
export function parseShared(text: string): SharedConversation {
  return z.parse(sharedSchema, JSON.parse(text));
}
