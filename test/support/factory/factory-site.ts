/** A factory in a separate directory, between a mock batch system and a mock gateway; `endAll` ends it. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { statusCommand } from '../../../factory/cli/status-command.ts';
import { readFactoryConfig } from '../../../factory/config/read-config.ts';
import type { Memory } from '../../../factory/decisions/persisted-state.ts';
import type { DemandReading, GatewaySource } from '../../../factory/demand/demand-source.ts';
import { Factory } from '../../../factory/life/factory.ts';
import type { FactoryReport } from '../../../shared/factory/factory-exchange.ts';
import { atEnd } from '../processes.ts';
import { MockLauncher } from './mock-launcher.ts';

class StandInGateway implements GatewaySource {
  readonly reports: FactoryReport[] = [];
  heard: DemandReading = { demand: new Map(), nodes: [] };
  news: () => void = () => {};
  open(changed: () => void): void {
    this.news = changed;
  }
  report(report: FactoryReport): void {
    this.reports.push(report);
  }
  latest(): DemandReading {
    return this.heard;
  }
  fault(): undefined {}
  async close(): Promise<void> {}
}

export class FactorySite {
  readonly configPath: string;
  readonly launcher = new MockLauncher();

  constructor(text: string) {
    const directory = mkdtempSync(join(tmpdir(), 'otela-factory-'));
    atEnd(() => rmSync(directory, { recursive: true }));
    this.configPath = join(directory, 'factory.toml');
    writeFileSync(this.configPath, text);
  }

  start(launcher = this.launcher) {
    const gateway = new StandInGateway();
    const lines: string[] = [];
    const factory = new Factory({
      configPath: this.configPath,
      config: readFactoryConfig(this.configPath),
      gateway,
      log: (line) => void lines.push(line),
      launcherFor: () => launcher,
    });
    const over = factory.run();
    const stop = async () => {
      factory.stop();
      return over;
    };
    atEnd(async () => void (await stop()));
    return { gateway, lines, stop };
  }

  get state(): string {
    return readFactoryConfig(this.configPath).state;
  }

  remember(change: (memory: Memory) => void): void {
    const path = join(this.state, 'memory.json');
    const memory: Memory = JSON.parse(readFileSync(path, 'utf8'));
    change(memory);
    writeFileSync(path, JSON.stringify(memory));
  }

  status(): string {
    const out: string[] = [];
    statusCommand(this.configPath, false, { out: (text) => void out.push(text), log: () => {} });
    return out.join('\n');
  }
}
