import { llamaCpp } from './llama-cpp.ts';
import { ollama } from './ollama.ts';
import { transformers, vllm } from './python-engines.ts';
import type { RealEngine } from './real-engine.ts';
import { whisperCpp } from './whisper-cpp.ts';

/** In the order of the table in docs/engines.md. */
export const ENGINES: readonly RealEngine[] = [vllm, llamaCpp, ollama, transformers, whisperCpp];
