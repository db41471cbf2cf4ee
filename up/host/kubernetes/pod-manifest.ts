/** The pod of a run: a container with the engine's image that waits for its job, which `otela up` starts in it. */
import type { IPod as Pod } from 'kubernetes-models/v1/Pod';
import { type Run, runDirectory } from '../../state/runs.ts';

export interface PodWish {
  image: string;
  gpus: number;
  /** Name of the GPUs as a resource: `nvidia.com/gpu`. */
  resource: string;
  /** Longest time of the pod in seconds after its start; undefined: no limit. */
  seconds: number | undefined;
  nodeSelector: Readonly<Record<string, string>>;
}

/** Home directory in the container: its user may have none. */
export const POD_HOME = '/otela';
/** The container's name. */
export const CONTAINER = 'engine';
/** Seconds that agent and engine have to end. */
export const GRACE_S = 120;
/** How long the pod waits for its job: the agent is sent first, over a slow network too. */
const WAITS_S = 1_200;
/** How long it stays after the end of a job, so that `otela up` reads why and may start the next one. */
const STAYS_S = 60;

export const podName = ({ id }: Pick<Run, 'id'>): string => `otela-up-${id}`;

/** Labels of a run's pod. Another pod with its name is not used and not deleted. */
export const podLabels = ({ id }: Pick<Run, 'id'>): Record<string, string> => ({
  'app.kubernetes.io/managed-by': 'otela-up',
  'app.kubernetes.io/instance': id,
});

/**
 * The container's main process. The job is a process group with files in the run's directory, as on a machine without a
 * batch system.
 */
function mainScript(run: Pick<Run, 'id'>): string {
  return `cd "$HOME" && mkdir -p ${runDirectory(run)} && cd ${runDirectory(run)} || exit 1
alive() { for file in [0-9]*.pid; do [ -e "$file" ] && [ ! -e "\${file%.pid}.exit" ] && return 0; done; return 1; }
finish() { left=0; for file in [0-9]*.pid; do [ -e "$file" ] && read -r pid start <"$file" && kill -TERM -- "-$pid"; done; }
left=${WAITS_S}
trap finish TERM
while [ "$left" -gt 0 ] || alive; do
  sleep 1 & wait $!
  if alive; then [ "$left" -eq 0 ] || left=${STAYS_S}; else left=$((left - 1)); fi
done
cat [0-9]*.log 2>/dev/null | tail -n 200
exit "$(cat [0-9]*.exit 2>/dev/null | tail -n 1 | grep . || echo 1)"`;
}

/** Works in namespaces of the pod security standard `baseline`; images of engines need root, which `restricted` forbids. */
export function podManifest(run: Pick<Run, 'id' | 'model'>, wish: PodWish): Pod {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: podName(run),
      labels: podLabels(run),
      annotations: { 'otela/model': run.model },
    },
    spec: {
      restartPolicy: 'Never',
      terminationGracePeriodSeconds: GRACE_S,
      automountServiceAccountToken: false,
      ...(wish.seconds === undefined ? {} : { activeDeadlineSeconds: wish.seconds }),
      ...(Object.keys(wish.nodeSelector).length === 0 ? {} : { nodeSelector: { ...wish.nodeSelector } }),
      securityContext: { seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: CONTAINER,
          image: wish.image,
          command: ['/bin/bash', '-c', mainScript(run)],
          env: [{ name: 'HOME', value: POD_HOME }],
          resources: { limits: { [wish.resource]: String(wish.gpus) } },
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
          volumeMounts: [
            { name: 'home', mountPath: POD_HOME },
            // Engines on several GPUs share memory. The default is 64 MiB.
            { name: 'shared-memory', mountPath: '/dev/shm' },
          ],
        },
      ],
      volumes: [
        { name: 'home', emptyDir: {} },
        { name: 'shared-memory', emptyDir: { medium: 'Memory' } },
      ],
    },
  };
}
