import type { Run } from '../state/runs.ts';
import { type Host, THIS_MACHINE } from './host.ts';
import { KubernetesPod, type PodStart } from './kubernetes/kubernetes-pod.ts';
import { kubernetesPlace } from './kubernetes/place.ts';
import { LocalShell } from './local-shell.ts';
import { Ssh } from './openssh.ts';

/** @throws UpError, HostGoneError if the host is a pod that has ended */
export async function reconnectHost(run: Pick<Run, 'id' | 'host' | 'model'>): Promise<Host> {
  const host = await connectHost(run);
  if (host instanceof KubernetesPod) await host.requireRunning();
  return host;
}

/** @throws UpError */
export async function connectHost(run: Pick<Run, 'id' | 'host' | 'model'>): Promise<Host> {
  const { host } = run;
  const place = kubernetesPlace(host);
  if (place !== undefined) return new KubernetesPod(place, run);
  return host === THIS_MACHINE ? new LocalShell() : Ssh.connect(host);
}

/**
 * Connects and runs a first script, in one round trip. Returns its output too.
 * @param pod how a pod is started, if the host is one
 * @throws UpError
 */
export async function connectAndRun(
  run: Pick<Run, 'id' | 'host' | 'model'>,
  script: string,
  pod: PodStart | undefined,
): Promise<{ host: Host; out: string }> {
  const place = kubernetesPlace(run.host);
  if (place === undefined && run.host !== THIS_MACHINE) return Ssh.connectAndRun(run.host, script);
  const host = place === undefined ? new LocalShell() : new KubernetesPod(place, run);
  if (host instanceof KubernetesPod && pod !== undefined) await host.start(pod);
  return { host, out: await host.output(script) };
}
