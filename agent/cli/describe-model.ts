import type { ServedModel } from '../../shared/lattice/node-record.ts';

/** One line with all facts about a model that the node publishes. */
export function describeModel(model: ServedModel): string {
  const { id, state, context_length: context, quantization, engine, engine_version: version, revision } = model;
  const { parameters, input_modalities: reads, output_modalities: writes, tool_parser: tools } = model;
  const { reasoning_parser: reasoning, max_batch: batch, kv_tokens: kv } = model;
  const facts = [
    context && `${context} tokens`,
    quantization,
    engine && [engine, version].filter(Boolean).join(' '),
    revision,
    parameters && `${(parameters / 1e9).toPrecision(3)}B parameters`,
    reads && writes && `${reads.join('+')} to ${writes.join('+')}`,
    tools && `tools: ${tools}`,
    reasoning && `reasoning: ${reasoning}`,
    batch && `batch of ${batch}`,
    kv && `KV cache of ${kv} tokens`,
  ].filter(Boolean);
  return [id, state, ...facts].join('  ');
}
