import { parseSource, type Source, sourceText } from '../../../shared/weights/weights-source.ts';
import { WeightsError } from '../weights-error.ts';
import type { BlobSource } from './blob-source.ts';
import { DirectorySource } from './directory-source.ts';
import { HubSource } from './hub-source.ts';
import { S3Source } from './s3-source.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** @throws WeightsError `wrong` if the environment lacks a setting that the source needs */
export function openSource(source: Source, env: Env): BlobSource {
  switch (source.kind) {
    case 'hub':
      return new HubSource(source, env);
    case 'dir':
      return new DirectorySource(source);
    case 's3':
      return new S3Source(source, env);
    case 'packages':
      throw new WeightsError('wrong', `${sourceText(source)} is packed only by nodes that run its function`);
  }
}

/** @throws WeightsError wrong */
export function readSource(text: string): Source {
  const source = parseSource(text);
  if (source !== undefined) return source;
  throw new WeightsError('wrong', `"${text}" is not hub:ORG/NAME[@REVISION], dir:/PATH or s3://BUCKET/PREFIX`);
}
