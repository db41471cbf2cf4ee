import type { ModelLoad } from '../api/schemas.ts';
import { t } from '../texts/index.ts';
import type { CatalogueModel } from './catalogue.ts';
import { startableWords } from './startable.ts';

interface ModelState {
  kind: 'good' | 'wait' | 'bad';
  text: string;
}

const texts = t.modelStates;

/**
 * In a word or two, what a request to the model would meet now. `load` undefined: its engines report none, because they
 * are idle.
 */
export function modelState(model: CatalogueModel | undefined, load: ModelLoad | undefined): ModelState {
  if (model === undefined) return { kind: 'bad', text: texts.notServed };
  if (model.serving > 0) {
    if (load !== undefined && load.waiting > 0) return { kind: 'wait', text: texts.busy(load.waiting) };
    if (load !== undefined && load.running > 0) return { kind: 'good', text: texts.running(load.running) };
    return { kind: 'good', text: texts.idle };
  }
  if (model.start !== undefined)
    return { kind: model.start.state === 'resting' ? 'bad' : 'wait', text: startableWords(model.start) };
  if (model.loading > 0) return { kind: 'wait', text: texts.loading };
  return { kind: 'bad', text: model.silent > 0 ? texts.silent : texts.notServed };
}
