/** The price of electricity in each region, which an operator sets. */
import { eq } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { settings } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { type PriceTable, pricesBodySchema } from '../../settings/region-settings.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, notifyIsolates } from '../apply-change.ts';

const ROW = 'region_prices';

const pricesSchema = pricesBodySchema.extend({ object: z.literal('region_prices') });

export const regionPriceRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/regions/prices',
    summary: 'Return the electricity prices of all regions.',
    answer: pricesSchema,
    run: async (call) => {
      const table = await readPrices(call);
      if (table === undefined) throw new ApiError('not_found', 'No electricity prices are set.');
      return { object: 'region_prices', ...table };
    },
  }),
  route({
    role: 'operator',
    method: 'put',
    path: '/regions/prices',
    summary: 'Set the electricity prices of all regions, with the date of the price table. Region planners read it.',
    body: pricesBodySchema,
    answer: pricesSchema,
    run: put,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: '/regions/prices',
    summary: 'Delete the prices. Planners then use the same price for all regions. Repeating is safe.',
    answer: z.object({ object: z.literal('region_prices'), deleted: z.boolean() }),
    run: remove,
  }),
];

async function put(call: AdminCall<PriceTable>): Promise<object> {
  const { body: value, now } = call;
  const names = value.prices.map(({ region }) => region.toLowerCase());
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined)
    throw new ApiError('unprocessable_content', `prices: "${twice}" is listed twice.`, { param: 'prices' });
  const before = await readPrices(call);
  const set = { value, updatedAt: now };
  const write = database(call.env)
    .insert(settings)
    .values({ name: ROW, ...set })
    .onConflictDoUpdate({ target: settings.name, set });
  await applyChange(call, [write], { action: 'regions.prices', object: ROW, before, after: value });
  return { object: 'region_prices', ...value };
}

async function remove(call: AdminCall): Promise<object> {
  const before = await readPrices(call);
  if (before === undefined) await notifyIsolates(call.env);
  else {
    const write = database(call.env).delete(settings).where(eq(settings.name, ROW));
    await applyChange(call, [write], { action: 'regions.prices', object: ROW, before });
  }
  return { object: 'region_prices', deleted: before !== undefined };
}

export async function readPrices(call: Pick<AdminCall<unknown, unknown>, 'env'>): Promise<PriceTable | undefined> {
  const [row] = await queryOrUnavailable(database(call.env).select().from(settings).where(eq(settings.name, ROW)));
  return pricesBodySchema.safeParse(row?.value).data;
}
