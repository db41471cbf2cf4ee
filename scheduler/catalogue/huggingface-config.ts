import { nearestNames } from '../../shared/text/nearest-name.ts';
import { SchedulerError } from '../errors.ts';
import { ConfigReader } from './config-reader.ts';
import { familyOf, MODEL_TYPES } from './family-by-model-type.ts';
import type { Layer } from './layers.ts';
import type { Model } from './model.ts';
import type { ModelFamily, SingleLayer } from './model-families.ts';
import { storageOf } from './quantization.ts';

/** Maximum number of layers of a model; no real decoder has this many. */
const LAYERS_MAX = 1000;

export function isHuggingFaceConfig(value: unknown): value is object {
  return (
    typeof value === 'object' &&
    value !== null &&
    ('num_hidden_layers' in value || 'n_layer' in value || 'text_config' in value || 'model_type' in value)
  );
}

/**
 * Reads a model from `config`, a parsed `config.json`. `id` is the model's served name.
 *
 * @throws SchedulerError `bad_input` with the faulty field, or with the name of an architecture that is not modeled
 */
export function modelFromConfig(config: unknown, id: string): Model {
  const whole = new ConfigReader(config, id);
  // Multimodal models have the decoder in `text_config`; some also have a few of its fields outside.
  const c = whole.nested('text_config') ?? whole;
  const type = modelType(c) ?? modelType(whole) ?? '';
  const family = familyOf(type) ?? familyOf(`${type}_text`);
  if (family === undefined) throw unknownArchitecture(id, type);
  // The number of layers may be the length of this list: Nemotron 3 Ultra has no field for the number.
  const listed = c.list('layers_block_type')?.length;
  const count = c.count('num_hidden_layers', 'n_layer', 'n_layers') ?? listed ?? c.need('num_hidden_layers');
  if (count > LAYERS_MAX)
    throw new SchedulerError('bad_input', `${id}: num_hidden_layers is ${count}; at most ${LAYERS_MAX}`);
  return {
    id,
    hidden: c.need('hidden_size', 'n_embd', 'd_model'),
    vocab: c.need('vocab_size'),
    tied: c.flag('tie_word_embeddings') ?? whole.flag('tie_word_embeddings') ?? family.tied,
    layers: layersOf(c, family, count),
    extra: towerParameters(whole.nested('vision_config')),
    storage: storageOf(whole, count),
    context: c.count('max_position_embeddings', 'n_positions', 'max_seq_len', 'seq_length') ?? 0,
    source: 'config.json',
  };
}

/** The decoder of a multimodal model has the same name as the plain decoder, or that name with `_text` appended. */
const modelType = (c: ConfigReader): string | undefined => c.text('model_type');

function unknownArchitecture(id: string, type: string): SchedulerError {
  const named = type === '' ? 'its config.json has no model_type' : `the architecture "${type}" is not supported`;
  const near = type === '' ? '' : `; nearest: ${nearestNames(type, MODEL_TYPES).join(', ')}`;
  return new SchedulerError('bad_input', `${id}: ${named}${near}. A models file can describe an equivalent decoder`);
}

/** Returns the layers. Equal layers are merged and counted. */
function layersOf(c: ConfigReader, family: ModelFamily, count: number): Layer[] {
  const kinds = new Map<string, { count: number; one: SingleLayer }>();
  for (let index = 0; index < count; index++) {
    const one = family.layer(c, index);
    const key = JSON.stringify(one);
    const known = kinds.get(key);
    if (known === undefined) kinds.set(key, { count: 1, one });
    else known.count++;
  }
  return [...kinds.values()].map(({ count: alike, one }) => ({ count: alike, ...one }));
}

/**
 * Parameters of a vision tower. A layer of a vision transformer has four square matrices and a feed-forward block
 * without a gate. Projectors are left out, because they have less than a thousandth of the parameters.
 */
function towerParameters(c: ConfigReader | undefined): number {
  const hidden = c?.count('hidden_size', 'vt_hidden_size', 'embed_dim');
  const layers = c?.count('num_hidden_layers', 'vt_num_hidden_layers', 'depth');
  if (hidden === undefined || layers === undefined) return 0;
  const width = c?.count('intermediate_size', 'vt_intermediate_size') ?? 4 * hidden;
  return layers * (4 * hidden * hidden + 2 * hidden * width);
}
