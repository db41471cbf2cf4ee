import { join } from 'node:path';
import * as z from 'zod';
import { dataPath, readJson } from '../../../scheduler/catalogue/catalogue.ts';
import { modelFromConfig } from '../../../scheduler/catalogue/huggingface-config.ts';
import type { Model } from '../../../scheduler/catalogue/model.ts';
import { ROOT } from '../../support/where.ts';

const fileSchema = z.object({
  models: z.array(
    z.object({
      id: z.string(),
      parameters_b: z.number(),
      active_b: z.number().optional(),
      weights: z.string(),
      kv: z.string(),
      parts: z.record(z.string(), z.string()).optional(),
      /** Maximum length of prompt and response together, in tokens. */
      context: z.number().optional(),
      config: z.record(z.string(), z.unknown()),
    }),
  ),
});

/** Facts of public `config.json` files with their publishers' statements; the sources are in the files. */
export const PUBLIC_MODELS = [dataPath('model-configs.json'), join(ROOT, 'test/fixtures/model-configs.json')].flatMap(
  (path) => fileSchema.parse(readJson(path)).models,
);

export function publicConfig(id: string): Record<string, unknown> {
  const found = PUBLIC_MODELS.find((one) => one.id === id);
  if (found === undefined) throw new Error(`no public model is called ${id}`);
  return found.config;
}

export const publicModel = (id: string): Model => modelFromConfig(publicConfig(id), id);
