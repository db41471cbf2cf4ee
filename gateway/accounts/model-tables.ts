/** Tables in D1 about models; see account-tables.ts. */
import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import type { Modality } from '../../shared/lattice/node-record.ts';
import type { RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import type { WeightRule } from '../../shared/routing/policies/node-weights.ts';
import { MODEL_CLASSES } from '../settings/timeout-classes.ts';

/** Settings of a model that differ from the gateway's defaults; NULL: the default. */
export const modelSettings = sqliteTable('model_settings', {
  model: text('model').primaryKey(),
  firstByteMs: integer('first_byte_ms'),
  stallMs: integer('stall_ms'),
  /** The class selects the gateway's timeouts if the model has none. */
  class: text('class', { enum: MODEL_CLASSES }).notNull().default('standard'),
  policy: text('policy'),
  /** Other names of the model. */
  aliases: text('aliases', { mode: 'json' }).$type<string[]>(),
  /** Models that are tried in this order if no node serves it. */
  fallbacks: text('fallbacks', { mode: 'json' }).$type<string[]>(),
  maxRetries: integer('max_retries'),
  /**
   * Milliseconds for which requests wait while the model is being started, unless the request or its key sets a time.
   */
  startWaitMs: integer('start_wait_ms'),
  /**
   * Milliseconds within which a stream should begin, unless its request names a time. Nodes and fallbacks that meet it
   * come first.
   */
  firstTokenMs: integer('first_token_ms'),
  /** True if the model's name is confidential. The trace then contains a keyed hash of the name. */
  private: integer('private', { mode: 'boolean' }).notNull().default(false),
  updatedAt: integer('updated_at').notNull(),
});

/**
 * The part of a model's catalog entry that affects requests. PATCH changes only the fields that it names, so an older
 * client does not remove an access list.
 */
export const catalogue = sqliteTable('catalogue', {
  model: text('model').primaryKey(),
  /** Id of the user that is responsible for the model. */
  ownerId: text('owner_id'),
  /** Ids of keys, users and projects, and groups (`group:…`), that may see and use the model; NULL: everyone. */
  access: text('access', { mode: 'json' }).$type<string[]>(),
  alwaysOn: integer('always_on', { mode: 'boolean' }).notNull().default(false),
  deprecatedAt: integer('deprecated_at'),
  /** When the model is retired: from this time on, requests for it get 404. Milliseconds since the epoch. */
  sunsetAt: integer('sunset_at'),
  successor: text('successor'),
  updatedAt: integer('updated_at').notNull(),
});

/** The part of a model's catalog entry that people read. Routing does not use it. */
export const modelCards = sqliteTable('model_cards', {
  model: text('model').primaryKey(),
  description: text('description').notNull(),
  license: text('license').notNull(),
  size: text('size').notNull(),
  contextLength: integer('context_length'),
  input: text('input', { mode: 'json' }).$type<Modality[]>().notNull(),
  output: text('output', { mode: 'json' }).$type<Modality[]>().notNull(),
  tools: integer('tools', { mode: 'boolean' }),
  reasoning: integer('reasoning', { mode: 'boolean' }),
  url: text('url'),
  updatedAt: integer('updated_at').notNull(),
});

/** Rules that determine which share of a model's requests each node gets. */
export const modelWeights = sqliteTable('model_weights', {
  model: text('model').primaryKey(),
  weights: text('weights', { mode: 'json' }).$type<WeightRule[]>().notNull(),
  /** Kinds of requests to which the weights refer; NULL: none. */
  kinds: text('kinds', { mode: 'json' }).$type<RequestKind[]>(),
  updatedAt: integer('updated_at').notNull(),
});
