/**
 * Where clients name a conversation. The gateway reads the names that clients send without configuration, so that the
 * turns of a conversation reach the node that has its KV cache.
 */
import type { RequestFields } from '../attempts/parsed-request.ts';
import { fnv1a } from '../text/hash.ts';

/** A header, or a member of a JSON body. */
type NamePlace = { readonly header: string } | { readonly body: (fields: RequestFields) => string | undefined };

/** The first place that has a name counts. */
const PLACES: readonly NamePlace[] = [
  { header: 'x-otela-session' },
  // OpenAI's SDKs, and Codex. Its agents of one session have different keys.
  { body: ({ promptCacheKey }) => promptCacheKey },
  // Claude Code: https://code.claude.com/docs/en/llm-gateway-protocol
  { header: 'x-claude-code-session-id' },
  // Codex: codex-rs/codex-api/src/requests/headers.rs. Releases before 2026 write it with an underscore.
  { header: 'session-id' },
  { header: 'session_id' },
  // opencode: packages/opencode/src/session/llm/request.ts
  { header: 'x-session-affinity' },
  { header: 'x-session-id' },
  // Open WebUI with ENABLE_FORWARD_USER_INFO_HEADERS: backend/open_webui/env.py
  { header: 'x-openwebui-chat-id' },
  // Anthropic's SDKs. Claude Code writes device, account and session into it.
  { body: ({ metadata }) => metadata.user_id },
  // A user, not a conversation. LibreChat sends it.
  { body: ({ user }) => user },
];

/** Longer names are cut. An Anthropic `user_id` has about 200 characters, with the session at its end. */
const NAME_MAX_CHARS = 4096;

/**
 * Returns a short id of a request's conversation, which other projects cannot have; undefined if the client names no
 * conversation. The name is hashed, because it may contain a person's name and policies remember ids of thousands of
 * conversations.
 */
export function conversationId(
  header: (name: string) => string | null | undefined,
  fields: RequestFields,
  project: string,
): string | undefined {
  for (const place of PLACES) {
    const name = 'header' in place ? header(place.header) : place.body(fields);
    if (name) return `${project} ${hash64(name.slice(0, NAME_MAX_CHARS))}`;
  }
  return undefined;
}

/** 64 bits in hex: two passes of 32 bits. The second pass starts with the result of the first. */
function hash64(text: string): string {
  const first = fnv1a(text);
  return `${first.toString(16)}-${fnv1a(text, first).toString(16)}`;
}
