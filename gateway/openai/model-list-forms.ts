/** The list of models in the forms of clients that do not read OpenAI's. */
import { ApiError } from '../../shared/openai/api-errors.ts';

/** The members of a model in OpenAI's form that other forms use. */
interface ListedModel {
  id: string;
  /** Unix seconds. */
  created: number;
  display_name?: string;
  context_length?: number;
}

/** A model as Anthropic lists it: https://docs.claude.com/en/api/models-list */
interface AnthropicModel {
  type: 'model';
  id: string;
  display_name: string;
  /** RFC 3339. */
  created_at: string;
  max_input_tokens?: number;
}

interface AnthropicPage {
  data: AnthropicModel[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** The page that a client of Anthropic asked for. */
interface PageQuery {
  limit: string | undefined;
  afterId: string | undefined;
  beforeId: string | undefined;
}

/** Anthropic's own bounds. */
const LIMIT_DEFAULT = 20;
const LIMIT_MAX = 1000;

export function anthropicModel({ id, display_name, created, context_length }: ListedModel): AnthropicModel {
  return {
    type: 'model',
    id,
    display_name: display_name ?? id,
    created_at: new Date(created * 1000).toISOString(),
    ...(context_length !== undefined && { max_input_tokens: context_length }),
  };
}

/** @throws ApiError 400 if the limit is not a number from 1 to 1000; 404 if the list has no model with the given id */
export function anthropicPage(models: readonly ListedModel[], { limit, afterId, beforeId }: PageQuery): AnthropicPage {
  const size = limit === undefined ? LIMIT_DEFAULT : Number(limit);
  if (!Number.isInteger(size) || size < 1 || size > LIMIT_MAX)
    throw new ApiError('invalid_request', `limit: must be from 1 to ${LIMIT_MAX}.`, { param: 'limit' });
  const begin = afterId === undefined ? 0 : indexOf(models, afterId, 'after_id') + 1;
  const end = beforeId === undefined ? models.length : indexOf(models, beforeId, 'before_id');
  // `before_id` asks for the models directly before it, `after_id` for those directly after it.
  const from = beforeId !== undefined && afterId === undefined ? Math.max(begin, end - size) : begin;
  const to = Math.min(end, from + size);
  const data = models.slice(from, to).map(anthropicModel);
  const has_more = beforeId !== undefined && afterId === undefined ? from > begin : to < end;
  return { data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more };
}

function indexOf(models: readonly ListedModel[], id: string, param: string): number {
  const at = models.findIndex((model) => model.id === id);
  if (at === -1) throw new ApiError('invalid_request', `${param}: the list has no such model.`, { param });
  return at;
}

/**
 * Codex adds `client_version` to the query, and reports an error if the response has no `models`. The list is empty on
 * purpose: each entry would have to contain instructions, and Codex would use them in place of its built-in prompt
 * (https://github.com/NVIDIA-NeMo/Switchyard/issues/565). With an empty list, Codex uses the configured model with its
 * built-in prompt.
 */
export function codexList<L extends object>(list: L): L & { models: [] } {
  return { ...list, models: [] };
}
