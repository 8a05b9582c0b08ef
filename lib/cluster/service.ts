// service.ts: the systemd unit that keeps a node of a cluster running, with as few rights as it can do with.
import { readFile, readlink, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { expectOneOf } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { packageFolder } from '../core/package-folder.js'
import { ioError, makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { isThere } from '../io/read-file.js'
import { clusterHome, makeSecretFolder } from './trust/home.js'

/** Whose unit it is: of the system, which starts it with the machine, or of the user, which starts it at login. */
export type ServiceScope = 'system' | 'user'

/** A unit: its file, its text, and what makes systemd know of it. */
export interface Service {
  readonly scope: ServiceScope
  readonly file: string
  readonly text: string
  /** Commands to run next, in this order. */
  readonly next: readonly string[]
}

/** Where systemd is and looks for units. */
export interface ServicePlaces {
  /** Exists where systemd runs: `/run/systemd/system` by default. */
  readonly systemd?: string
  /** Folder of units: by default the administrator's or the user's. */
  readonly folder?: string
}

const name = 'dgx-spark'
const marker = '# Written by `dgx-spark service install`; `dgx-spark service remove` removes it.'
/** Where a service of the system has its state and its cache; systemd makes them, for the service alone. */
const [systemState, systemCache] = [`/var/lib/${name}`, `/var/cache/${name}`]

/**
 * The unit that would be installed. Nothing is written.
 * @throws SparkError ERR_ARGUMENT; ERR_IO for a user without a home; ERR_UNSUPPORTED where the package is not installed
 */
export function serviceUnit(scope: ServiceScope, { folder }: ServicePlaces = {}): Service {
  expectOneOf('scope', scope, ['system', 'user'])
  const config = process.env.XDG_CONFIG_HOME || path.join(homedir(), '.config')
  const units = scope === 'system' ? '/etc/systemd/system' : path.join(config, 'systemd', 'user')
  const file = path.join(folder ?? units, `${name}.service`)
  return { scope, file, text: unitText(scope), next: afterInstall(scope) }
}

const userCache = (): string => path.join(homedir(), '.cache')

/**
 * Writes the unit, and makes the folders that it may write to. A unit of an earlier version is replaced, a file of somebody else's is not.
 * @throws SparkError ERR_UNSUPPORTED where systemd does not run; ERR_BUSY where the file is not ours; ERR_IO
 */
export async function installService(scope: ServiceScope, places: ServicePlaces = {}): Promise<Service> {
  const service = serviceUnit(scope, places)
  await expectSystemd(places)
  await expectOurs(service.file)
  await makeFolder(path.dirname(service.file))
  // What is not there when the service starts stays read-only for it.
  if (scope === 'user') {
    await makeSecretFolder(clusterHome())
    await makeFolder(userCache())
  }
  await writeFileAtomic(service.file, [Buffer.from(service.text)], 0o644)
  return service
}

/**
 * Removes the unit, and the link that starts it.
 * @returns whether there was one, and what to run next
 * @throws SparkError ERR_UNSUPPORTED where systemd does not run; ERR_BUSY where the file is not ours; ERR_IO
 */
export async function removeService(
  scope: ServiceScope,
  places: ServicePlaces = {},
): Promise<{ removed: boolean; file: string; next: readonly string[] }> {
  const { file } = serviceUnit(scope, places)
  await expectSystemd(places)
  const removed = await expectOurs(file)
  const link = path.join(path.dirname(file), `${targetOf(scope)}.wants`, path.basename(file))
  try {
    if (removed && (await readlink(link).catch(() => undefined)) !== undefined) await rm(link)
    if (removed) await rm(file)
  } catch (error) {
    throw ioError('write', file, error)
  }
  const systemctl = systemctlOf(scope)
  return { removed, file, next: removed ? [`${systemctl} stop ${name}`, `${systemctl} daemon-reload`] : [] }
}

const targetOf = (scope: ServiceScope): string =>
  scope === 'system' ? 'multi-user.target' : 'default.target'
const systemctlOf = (scope: ServiceScope): string => (scope === 'system' ? 'systemctl' : 'systemctl --user')

function afterInstall(scope: ServiceScope): string[] {
  const systemctl = systemctlOf(scope)
  const start = [`${systemctl} daemon-reload`, `${systemctl} enable --now ${name}`]
  return scope === 'system'
    ? [...start, `journalctl -u ${name} -f`]
    : [...start, 'loginctl enable-linger', `journalctl --user -u ${name} -f`]
}

async function expectSystemd({ systemd = '/run/systemd/system' }: ServicePlaces): Promise<void> {
  if (await isThere(systemd)) return
  const remedy = "start 'dgx-spark up' by what starts services here"
  throw new SparkError('ERR_UNSUPPORTED', `systemd does not run on this system: ${remedy}`)
}

/** Whether there is a unit of ours; throws where there is another one's. */
async function expectOurs(file: string): Promise<boolean> {
  if (!(await isThere(file))) return false
  const text = await readFile(file, 'utf8').catch(error => {
    throw ioError('read', file, error)
  })
  if (text.startsWith(marker)) return true
  throw new SparkError('ERR_BUSY', `${file} was not written by this command: move it away`)
}

/** A word of a command as systemd reads it. */
const word = (text: string): string =>
  `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%').replaceAll('$', '$$$$')}"`

/** A value of Environment= or a path. */
const assignment = (text: string): string =>
  `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`

/** What both kinds of units restrict. MemoryDenyWriteExecute is not among it: V8 compiles while it runs. */
const restrictions = [
  'NoNewPrivileges=yes',
  'PrivateTmp=yes',
  'ProtectSystem=strict',
  'ProtectControlGroups=yes',
  'ProtectKernelTunables=yes',
  'LockPersonality=yes',
  'RestrictNamespaces=yes',
  'RestrictRealtime=yes',
  'RestrictSUIDSGID=yes',
  'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK',
  'SystemCallArchitectures=native',
  'SystemCallFilter=@system-service @pkey',
  'SystemCallErrorNumber=EPERM',
  'UMask=0077',
]

/** What only the manager of the system can restrict. GPUs and InfiniBand are the only devices. */
const systemRestrictions = [
  'CapabilityBoundingSet=',
  'AmbientCapabilities=',
  'ProtectClock=yes',
  'ProtectHostname=yes',
  'ProtectKernelLogs=yes',
  'ProtectKernelModules=yes',
  'DevicePolicy=closed',
  'DeviceAllow=char-nvidia* rw',
  'DeviceAllow=/dev/nvidiactl rw',
  'DeviceAllow=/dev/nvidia-uvm rw',
  'DeviceAllow=/dev/nvidia0 rw',
  'DeviceAllow=char-infiniband* rw',
]

function programFile(): string {
  const folder = packageFolder()
  if (folder !== undefined) return path.join(folder, 'dist', 'cli', 'main.js')
  throw new SparkError('ERR_UNSUPPORTED', 'a service needs the installed package: npm install -g dgx-spark')
}

function unitText(scope: ServiceScope): string {
  const program = programFile()
  const isInHome = [process.execPath, program].some(file => /^\/(home|root|run\/user)\//.test(file))
  const state =
    scope === 'system'
      ? [
          'DynamicUser=yes',
          `StateDirectory=${name}`,
          'StateDirectoryMode=0700',
          `CacheDirectory=${name}`,
          `Environment=DGX_SPARK_CLUSTER_HOME=${systemState} XDG_CACHE_HOME=${systemCache}`,
          // The program itself may lie in a home folder.
          `ProtectHome=${isInHome ? 'read-only' : 'yes'}`,
          ...systemRestrictions,
        ]
      : [
          `Environment=${assignment(`DGX_SPARK_CLUSTER_HOME=${clusterHome()}`)}`,
          ...[clusterHome(), userCache()].map(folder => `ReadWritePaths=${assignment(`-${folder}`)}`),
        ]
  return `${[
    marker,
    '[Unit]',
    'Description=Node of a dgx-spark cluster',
    ...(scope === 'system' ? ['Wants=network-online.target', 'After=network-online.target'] : []),
    'StartLimitIntervalSec=300',
    'StartLimitBurst=10',
    '',
    '[Service]',
    `ExecStart=${[process.execPath, program, 'up'].map(word).join(' ')}`,
    'Restart=on-failure',
    'RestartSec=2',
    'TimeoutStopSec=30',
    'KillMode=mixed',
    'LimitNOFILE=65536',
    'LimitMEMLOCK=infinity',
    ...state,
    ...restrictions,
    '',
    '[Install]',
    `WantedBy=${targetOf(scope)}`,
  ].join('\n')}\n`
}
