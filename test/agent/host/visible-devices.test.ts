import { describe, expect, it } from 'vitest';
import { visibleDevices } from '../../../agent/host/visible-devices.ts';

interface D {
  uuid: string;
  slices: D[];
}
const device = (uuid: string, slices: D[] = []): D => ({ uuid, slices });
const four = ['GPU-aa11', 'GPU-aa22', 'GPU-bb33', 'GPU-cc44'].map((uuid) => device(uuid));
const seen = (variable: string | undefined, all: D[] = four) => visibleDevices(all, variable).map(({ uuid }) => uuid);

describe('visible devices', () => {
  it('are all when the variable is not set', () => {
    expect(seen(undefined)).toHaveLength(4);
  });

  it.each(['', 'NoDevFiles', '-1', 'none', ' ', ','])('are none for "%s"', (variable) => {
    expect(seen(variable)).toEqual([]);
  });

  it('keep the order of the indices', () => {
    expect(seen('2,0')).toEqual(['GPU-bb33', 'GPU-aa11']);
  });

  it('end at the first entry that names nothing', () => {
    expect(seen('1,9,0')).toEqual(['GPU-aa22']);
    expect(seen('0,-1,1')).toEqual(['GPU-aa11']);
    expect(seen('3, 2 ,x,1')).toEqual(['GPU-cc44', 'GPU-bb33']);
  });

  it('are found by UUID and by the beginning of one, unless that fits two', () => {
    expect(seen('GPU-cc44,gpu-bb')).toEqual(['GPU-cc44', 'GPU-bb33']);
    expect(seen('GPU-aa')).toEqual([]);
  });

  it('count once when named twice', () => {
    expect(seen('1,1')).toEqual(['GPU-aa22']);
  });

  it('are all of a confined list when the indices count over the whole node', () => {
    expect(seen('2,3', four.slice(0, 2))).toEqual(['GPU-aa11', 'GPU-aa22']);
    expect(seen('1,2', four.slice(0, 2))).toEqual(['GPU-aa11', 'GPU-aa22']);
    // Fewer devices than indices, so it is unclear which are meant.
    expect(seen('2,3,4', four.slice(0, 2))).toEqual([]);
  });

  describe('in MIG mode', () => {
    const sliced = [device('GPU-aa11', [device('MIG-1'), device('MIG-2')]), device('GPU-bb33')];

    it('are the slices, named by their UUIDs', () => {
      expect(seen('MIG-2', sliced)).toEqual(['MIG-2']);
      expect(seen('MIG-GPU-aa11/1/0', [device('GPU-aa11', [device('MIG-GPU-aa11/1/0')])])).toEqual([
        'MIG-GPU-aa11/1/0',
      ]);
    });

    it('are the first slice of a device named as a whole', () => {
      expect(seen('0,1', sliced)).toEqual(['MIG-1', 'GPU-bb33']);
      expect(seen('GPU-aa11', sliced)).toEqual(['MIG-1']);
    });

    it('are every slice when the variable is not set', () => {
      expect(seen(undefined, sliced)).toEqual(['MIG-1', 'MIG-2', 'GPU-bb33']);
    });
  });
});
