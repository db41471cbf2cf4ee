import { describe, expect, test } from 'vitest';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { LAWS } from './laws.ts';

describe('A replica', () => {
  for (const law of Object.values(LAWS))
    test(law.says, () => expect(() => law.check({ RegistryReplica }, 300)).not.toThrow());
});
