import * as z from 'zod';
import { dataPath, readJson } from '../../../scheduler/catalogue/catalogue.ts';
import { modelFromConfig } from '../../../scheduler/catalogue/huggingface-config.ts';
import type { Model } from '../../../scheduler/catalogue/model.ts';

/** Facts of public `config.json` files with their publishers' statements; the sources are in the file. */
export const { models: PUBLIC_MODELS } = z
  .object({
    models: z.array(
      z.object({
        id: z.string(),
        parameters_b: z.number(),
        active_b: z.number().optional(),
        weights: z.string(),
        kv: z.string(),
        parts: z.record(z.string(), z.string()).optional(),
        config: z.record(z.string(), z.unknown()),
      }),
    ),
  })
  .parse(readJson(dataPath('model-configs.json')));

export function publicConfig(id: string): Record<string, unknown> {
  const found = PUBLIC_MODELS.find((one) => one.id === id);
  if (found === undefined) throw new Error(`no public model is called ${id}`);
  return found.config;
}

export const publicModel = (id: string): Model => modelFromConfig(publicConfig(id), id);
