// cluster-jobs.ts: work that all nodes of a cluster share: batches through a model, and jobs of any kind.
import { expectKnownOptions, expectOneOf, expectText } from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { ValueInfo } from '../graph/graph.js'
import type { Tensor } from '../memory/tensor.js'
import { copyFeeds, type Feeds } from '../model/feeds.js'
import type { JobDescription } from './jobs/jobs.js'
import { tensorOf } from './jobs/kinds.js'
import { type MapOptions, type MapResult, mapJobs, type StreamJobsOptions, streamJobs } from './jobs/map.js'
import type { JobValue } from './jobs/pack.js'
import { type SharedModel, shareModel } from './jobs/shared-models.js'
import type { ClusterNode } from './node/cluster-node.js'
import { clusterQueue } from './node/node-jobs.js'
import { StagedModel } from './stages/staged-model.js'

/** Options of {@link Cluster.mapJobs}. */
export type ClusterJobsOptions = Omit<MapOptions, 'queue' | 'leaseMs' | 'tries' | 'blobs' | 'from'>

/** Options of {@link Cluster.map}. */
export interface ClusterMapOptions extends Pick<StreamJobsOptions, 'run' | 'signal' | 'ahead'> {
  /** What nodes compute with. Default: `auto`, the best of each. */
  readonly backend?: SharedModel['backend']
  /** As of `Model.load`, on all nodes. Default: `fp32`, so that all nodes compute alike. */
  readonly precision?: string
}

/** Jobs of any kind for all nodes. */
export async function mapClusterJobs(
  node: ClusterNode,
  jobs: readonly JobDescription[],
  options: ClusterJobsOptions,
): Promise<MapResult> {
  expectKnownOptions('options', options, ['run', 'strict', 'signal', 'onProgress'])
  using _announced = node.jobs.announce()
  return await mapJobs(node.control, jobs, { ...options, ...placesOf(node) })
}

/** Batches through a model, each on whichever node is free. */
export async function* mapBatches(
  node: ClusterNode,
  file: string,
  batches: Iterable<Feeds> | AsyncIterable<Feeds>,
  options: ClusterMapOptions,
): AsyncGenerator<Record<string, Tensor<ElementType>>, void, undefined> {
  expectText('file', file)
  expectKnownOptions('options', options, ['run', 'signal', 'ahead', 'backend', 'precision'])
  const { backend = 'auto', precision = 'fp32', ...given } = options
  expectOneOf('options.backend', backend, ['auto', 'cpu', 'js', 'cuda'])
  expectText('options.precision', precision)
  const { blobs } = node.jobs
  const staged = await StagedModel.open(file, blobs.store, given.signal)
  const reference = await shareModel(staged, blobs)
  using _held = blobs.store.hold([reference.hash])
  const model: SharedModel = { ...reference, backend, precision }
  using _announced = node.jobs.announce()
  for await (const { value } of streamJobs(node.control, jobsOf(model, staged.graph.inputs, batches), {
    ...given,
    ...placesOf(node),
  }))
    yield outputsOf(value)
}

const placesOf = (node: ClusterNode) => ({
  ...clusterQueue,
  blobs: node.jobs.blobs,
  from: node.identity.nodeId,
})

async function* jobsOf(
  model: SharedModel,
  inputs: readonly ValueInfo[],
  batches: Iterable<Feeds> | AsyncIterable<Feeds>,
): AsyncGenerator<JobDescription> {
  for await (const batch of batches) {
    const feeds: Record<string, JobValue> = {}
    for (const [i, value] of copyFeeds(inputs, batch).entries()) {
      const { name } = inputs[i]!
      if (value.kind === 'sequence')
        throw new SparkError('ERR_UNSUPPORTED', `input ${name} is a sequence: run the model here`)
      if (value.kind === 'tensor')
        feeds[name] = { shape: [...value.shape], dtype: value.dtype, data: value.data as JobValue }
    }
    yield { kind: 'model.run', params: { model: { ...model }, feeds } }
  }
}

function outputsOf(value: JobValue): Record<string, Tensor<ElementType>> {
  const entries = Object.entries(value as Record<string, JobValue>)
  return Object.fromEntries(entries.map(([name, output]) => [name, tensorOf(output)!]))
}
