import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { readTemplates, type Templates } from '../deploy/deployment-templates.ts';
import type { EngineSpan } from '../engine/multi-machine-engine.ts';
import { type SettingReader, valueSetting } from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

export const DEPLOYMENT_SETTINGS = {
  templates: valueSetting({
    flag: 'accept-deployments',
    env: 'OTELA_ACCEPT_DEPLOYMENTS',
    value: 'DIR',
    help: 'start without an engine and run the deployments that the gateway orders; only the commands in DIR/NAME.json are allowed',
    parse: parseTemplates,
  }),
};

/** Templates of deployments that operators of gateways may start here; undefined if none may. @throws UsageError */
export function templatesConfig(reader: SettingReader, span: EngineSpan): Templates | undefined {
  if (reader.has(DEPLOYMENT_SETTINGS.templates) && (span.role !== 'register' || span.nodes > 1))
    throw new UsageError('--accept-deployments does not support engines that span several nodes');
  return reader.read(DEPLOYMENT_SETTINGS).templates;
}

function parseTemplates(directory: string): Templates {
  return toUsageError(() => {
    try {
      return readTemplates(directory);
    } catch (error) {
      throw new Error(`--accept-deployments: ${errorText(error)}`);
    }
  });
}
