import { enginesOf, gpusOf, type Parallelism, spreadOf } from '../roofline/parallelism.ts';

/**
 * What a job template may name to start an engine as planned. Flags of vLLM 0.12 to 0.19 (`vllm serve --help=ParallelConfig`), of Arctic
 * Inference for sequence parallelism, and of SGLang (docs, "Server Arguments"). All text is from here, so a shell may read it.
 */
const NAMES = {
  gpus: 'GPUs of a replica',
  tp: 'tensor parallelism',
  pp: 'pipeline parallelism',
  dp: 'data parallelism',
  sp: 'sequence parallelism',
  vllm_parallelism: "vLLM's flags",
  sglang_parallelism: "SGLang's flags",
  prefill_tp: "the prefill engine's tensor parallelism",
  prefill_vllm_parallelism: "vLLM's flags for the prefill engine",
  prefill_sglang_parallelism: "SGLang's flags for the prefill engine",
} as const;
export type EngineValues = Record<keyof typeof NAMES, string>;

export function engineValues(replica: Parallelism): EngineValues {
  const { decode, prefill = { tp: 1 } } = enginesOf(replica);
  const { tp, pp, dp, sp } = spreadOf(decode);
  return {
    gpus: String(gpusOf(replica)),
    tp: String(tp),
    pp: String(pp),
    dp: String(dp),
    sp: String(sp),
    vllm_parallelism: vllmArguments(decode),
    sglang_parallelism: sglangArguments(decode),
    prefill_tp: String(prefill.tp),
    prefill_vllm_parallelism: vllmArguments(prefill),
    prefill_sglang_parallelism: sglangArguments(prefill),
  };
}

function vllmArguments(parallelism: Parallelism): string {
  const { tp, pp, dp, ep, sp } = spreadOf(parallelism);
  return [
    `--tensor-parallel-size ${tp}`,
    ...(pp > 1 ? [`--pipeline-parallel-size ${pp}`] : []),
    ...(dp > 1 ? [`--data-parallel-size ${dp}`] : []),
    ...(ep ? ['--enable-expert-parallel'] : []),
    ...(sp > 1 ? [`--ulysses-sequence-parallel-size ${sp}`] : []),
  ].join(' ');
}

/** SGLang counts all GPUs of a stage as tensor parallelism, also those that data-parallel attention shares out. */
function sglangArguments(parallelism: Parallelism): string {
  const { tp, pp, dp, ep } = spreadOf(parallelism);
  return [
    `--tp-size ${tp * dp}`,
    ...(pp > 1 ? [`--pp-size ${pp}`] : []),
    ...(dp > 1 ? [`--dp-size ${dp} --enable-dp-attention`] : []),
    ...(ep ? [`--ep-size ${tp * dp}`] : []),
  ].join(' ');
}

/**
 * Whether a job template tells an engine so much: tensor parallelism always; anything else only where the template asks for `{{gpus}}` and
 * names the flags of one engine, or the number in question.
 */
export function templateAllows(template: string, replica: Parallelism): boolean {
  const names = (name: keyof EngineValues) => new RegExp(`\\{\\{\\s*${name}\\s*\\}\\}`).test(template);
  const { decode, prefill } = enginesOf(replica);
  const engine = (one: Parallelism, prefix: '' | 'prefill_'): boolean => {
    const { pp, dp, ep, sp } = spreadOf(one);
    const [vllm, sglang] = [names(`${prefix}vllm_parallelism`), names(`${prefix}sglang_parallelism`)];
    if (vllm) return true;
    if (sp > 1) return prefix === '' && names('sp');
    if (sglang) return true;
    const own = prefix === '';
    return !ep && (pp === 1 || (own && names('pp'))) && (dp === 1 || (own && names('dp')));
  };
  const plain = prefill === undefined && gpusOf(decode) === decode.tp && decode.ep !== true;
  if (plain) return true;
  const told =
    prefill === undefined ||
    names('prefill_tp') ||
    names('prefill_vllm_parallelism') ||
    names('prefill_sglang_parallelism');
  return names('gpus') && told && engine(decode, '') && (prefill === undefined || engine(prefill, 'prefill_'));
}
