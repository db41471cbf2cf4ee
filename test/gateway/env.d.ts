import type { D1Migration } from '@cloudflare/vitest-plugin/config';
import type { Env as GatewayEnv } from '../../gateway/env.ts';

declare global {
  namespace Cloudflare {
    interface GlobalProps {
      mainModule: typeof import('../../gateway/index.ts');
    }
    interface Env extends GatewayEnv {
      TEST_MIGRATIONS: D1Migration[];
    }
  }
}
