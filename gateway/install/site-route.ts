/** `GET /agent/site`: the profile of the cluster that a join token is for. */
import { Hono } from 'hono';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { siteOf } from '../../shared/slurm/site-profile.ts';
import { readJoinGrant } from '../accounts/join-token-grant.ts';
import { readSites } from '../accounts/site-profiles.ts';
import type { Env } from '../env.ts';

export const siteRoutes = new Hono<{ Bindings: Env }>();

/** 404 if the operator wrote no profile. The profile contains no secrets, but describes the cluster's inside. */
siteRoutes.get('/site', async (c) => {
  const token = /^Bearer (\S+)$/i.exec(c.req.header('authorization') ?? '')?.[1] ?? '';
  const asked = c.req.query('cluster');
  const { provider, cluster = asked } = await readJoinGrant(c.env, token, asked, Date.now());
  const profile = siteOf(await readSites(c.env), provider, cluster);
  if (profile === undefined)
    throw new ApiError('not_found', 'The operator of this gateway has no profile of this cluster.');
  return c.json(profile, 200, { 'cache-control': 'no-store' });
});
