/**
 * The pages, in the order of the navigation. The default export of a file is its page; it is loaded when it is first
 * opened.
 */

import type { ComponentType } from 'react';
import type { Me } from '../api/schemas.ts';
import { t } from '../texts/index.ts';
import type { Icon as IconType } from '../ui/icon.ts';
import {
  BookOpen,
  Boxes,
  ChartColumn,
  Factory,
  Globe,
  KeyRound,
  Layers,
  MessageSquare,
  Plug,
  Server,
  Settings2,
  Users,
} from '../ui/icons.ts';

export interface PageEntry {
  /** Location of the page: `#/chat`. */
  path: string;
  title: string;
  icon: IconType;
  /** The lowest role that may open the page. */
  role: Me['role'];
  group: keyof typeof t.groups;
  load: () => Promise<{ default: ComponentType }>;
}

const RANK: Readonly<Record<Me['role'], number>> = { consumer: 0, provider: 1, operator: 2 };

export const PAGES: readonly PageEntry[] = [
  {
    path: 'chat',
    title: t.pages.chat,
    icon: MessageSquare,
    role: 'consumer',
    group: 'use',
    load: () => import('../pages/chat.tsx'),
  },
  {
    path: 'models',
    title: t.pages.models,
    icon: Boxes,
    role: 'consumer',
    group: 'use',
    load: () => import('../pages/models/page.tsx'),
  },
  {
    path: 'batches',
    title: t.pages.batches,
    icon: Layers,
    role: 'consumer',
    group: 'use',
    load: () => import('../pages/batches/page.tsx'),
  },
  {
    path: 'usage',
    title: t.pages.usage,
    icon: ChartColumn,
    role: 'consumer',
    group: 'use',
    load: () => import('../pages/usage/page.tsx'),
  },
  {
    path: 'keys',
    title: t.pages.keys,
    icon: KeyRound,
    role: 'consumer',
    group: 'use',
    load: () => import('../pages/keys/page.tsx'),
  },
  {
    path: 'access',
    title: t.pages.access,
    icon: Users,
    role: 'consumer',
    group: 'use',
    load: () => import('../pages/access/page.tsx'),
  },
  {
    path: 'nodes',
    title: t.pages.nodes,
    icon: Server,
    role: 'provider',
    group: 'run',
    load: () => import('../pages/nodes/page.tsx'),
  },
  {
    path: 'providers',
    title: t.pages.providers,
    icon: Plug,
    role: 'provider',
    group: 'run',
    load: () => import('../pages/providers/page.tsx'),
  },
  {
    path: 'factory',
    title: t.pages.factory,
    icon: Factory,
    role: 'operator',
    group: 'run',
    load: () => import('../pages/factory/page.tsx'),
  },
  {
    path: 'regions',
    title: t.pages.regions,
    icon: Globe,
    role: 'operator',
    group: 'run',
    load: () => import('../pages/regions/page.tsx'),
  },
  {
    path: 'admin',
    title: t.pages.admin,
    icon: Settings2,
    role: 'operator',
    group: 'run',
    load: () => import('../pages/admin/page.tsx'),
  },
];

export const API_ICON = BookOpen;

export function pagesFor(role: Me['role']): PageEntry[] {
  return PAGES.filter((page) => RANK[role] >= RANK[page.role]);
}
