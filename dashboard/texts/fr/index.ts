/** Tous les textes de la page, en français. */
import type { Texts } from '../en/index.ts';
import { access } from './access.ts';
import { admin, audit, peers, projects, routing, settings, users } from './admin.ts';
import { apiReference } from './api-reference.ts';
import { batches } from './batches.ts';
import { chat } from './chat.ts';
import { factory, startable } from './factory.ts';
import { general } from './general.ts';
import { narrowing } from './key-restrictions.ts';
import { keys } from './keys.ts';
import { errorCodes, modelStates, models, usage } from './models.ts';
import { nodes } from './nodes.ts';
import { joinTokens, providers, wizard } from './providers.ts';
import { regions } from './regions.ts';
import { timeline } from './workload-following.ts';

export const fr: Texts = {
  ...general,
  access,
  apiReference,
  batches,
  chat,
  factory,
  startable,
  regions,
  timeline,
  keys,
  joinTokens,
  providers,
  wizard,
  nodes,
  models,
  modelStates,
  usage,
  errorCodes,
  narrowing,
  admin,
  users,
  projects,
  routing,
  peers,
  settings,
  audit,
};
