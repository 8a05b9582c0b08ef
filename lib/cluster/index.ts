/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Several machines: nodes that trust each other, find each other, measure their links and show their devices; decisions and
 * jobs that they share; and where the layers of a model would go. Its types need those of Node.js: `@types/node`.
 *
 * @packageDocumentation
 */

export {
  accuracyTable,
  type ChainAccuracy,
  type ChainAccuracyOptions,
  type ChainDifference,
  type ChainStage,
  chainAccuracy,
  type StageAccuracy,
} from './accuracy/chain-accuracy.js'
export { Cluster, type ClusterLoadOptions, type ClusterTextOptions, type Strategy } from './cluster.js'
export type { ClusterJobsOptions, ClusterMapOptions } from './cluster-jobs.js'
export type { Communicator, CommunicatorKind, RankOf } from './communicators/communicator.js'
export { checkTensorLink, maxTensorRttMs, type TensorLink } from './communicators/fabric-networks.js'
export {
  type JoinLocal,
  type JoinMpi,
  type JoinNccl,
  type JoinOptions as JoinRanksOptions,
  type JoinStream,
  join,
} from './communicators/join.js'
export type { RankLink } from './communicators/link-reader.js'
export { hostMpi, type MpiHostOptions } from './communicators/mpi-daemon.js'
export { launchMpi, type MpiHost, type MpiJob, type MpiLaunchOptions } from './communicators/mpi-launch.js'
export type {
  BucketOptions,
  Bus,
  BusMessage,
  ControlPlane,
  DecisionLog,
  Job,
  JsonValue,
  KeyValue,
  KvChange,
  KvEntry,
  Lease,
  LeaseHolder,
  LeaseRequest,
  LogRecord,
  PullOptions,
  PushOptions,
  QueueOptions,
  Quorum,
  Subscription,
  WorkQueue,
} from './control/control-plane.js'
export { EmbeddedControlPlane } from './control/embedded.js'
export { FencingGuard } from './control/lease.js'
export { NatsControlPlane, type NatsOptions } from './control/nats.js'
export type { NatsAddress } from './control/nats-address.js'
export {
  checkNatsServer,
  NatsServer,
  type NatsServerCheck,
  type NatsServerOptions,
  type NatsServerProblem,
} from './control/nats-server.js'
export {
  type BackendMemory,
  ComputeBackend,
  type ComputeBackendName,
  type ComputeTask,
  type DeviceTensor,
  type Fence,
  type TaskFeeds,
  type TaskResult,
} from './devices/compute-backend.js'
export {
  type ConstraintProvider,
  type Constraints,
  LocalConstraints,
  RemoteConstraints,
  type ThermalStatus,
} from './devices/constraints.js'
export type { DeviceDetector } from './devices/detect-devices.js'
export type { DeviceBuffer, Leak } from './devices/device-memory.js'
export type {
  BackendCapability,
  DeviceBackendName,
  DeviceRecord,
  DeviceState,
  DeviceTelemetry,
  DeviceVendor,
  MeasuredRates,
  OperatorSet,
  RuntimeStatus,
} from './devices/device-record.js'
export {
  type DeviceEvent,
  DeviceRegistry,
  type DeviceRegistryOptions,
  type SeenTimes,
} from './devices/device-registry.js'
export { NodePressure, type NodePressureOptions } from './devices/node-pressure.js'
export {
  type PressureDecision,
  type PressureInput,
  type PressureLevel,
  type PressureOptions,
  PressurePolicy,
  thermalHeadroom,
} from './devices/pressure.js'
export { type PressureActions, PressureGate } from './devices/pressure-gate.js'
export {
  type BackendSelection,
  createBackend,
  type SelectOptions,
  selectBackend,
} from './devices/select-backend.js'
export type { TelemetrySource } from './devices/telemetry.js'
export { ThermalModel, type ThermalParameters, type ThermalState } from './devices/thermal-model.js'
export {
  type ThermalPrediction,
  ThermalPredictor,
  type ThermalPredictorOptions,
  type ThermalReading,
} from './devices/thermal-predictor.js'
export {
  Discovery,
  type DiscoveryEvent,
  type DiscoveryOptions,
  type DiscoveryProblems,
  type DiscoverySource,
  type FoundNode,
} from './discovery/discovery.js'
export type { PacketCounts } from './discovery/network.js'
export type { Announcement } from './discovery/packets.js'
export type { JobBlobs } from './jobs/blobs.js'
export type { JobContext, JobDescription, JobHandler, JobHandlers, JobQueueOptions } from './jobs/jobs.js'
export {
  type DatasetPass,
  datasetJobs,
  type JoinedScenarios,
  jobHandlers,
  joinScenarios,
  type NodeSkills,
  scenarioJobs,
  type WrongScenario,
} from './jobs/kinds.js'
export {
  type FailedJob,
  type MapOptions,
  type MapResult,
  mapJobs,
  type StreamedResult,
  type StreamJobsOptions,
  streamJobs,
} from './jobs/map.js'
export type { JobValue } from './jobs/pack.js'
export { type JobLink, RemoteJobs, shareJobs } from './jobs/remote-jobs.js'
export type { SharedModels } from './jobs/shared-models.js'
export { type SharedTraining, type TrainTogetherOptions, trainTogether } from './jobs/train-together.js'
export { type WorkerEvent, WorkerLoop, type WorkerOptions } from './jobs/worker-loop.js'
export type { CallHandler } from './links/calls.js'
export type { LinkChannel } from './links/channels.js'
export { classifyLink, type LinkClass, type LinkFacts, type LinkKind } from './links/classify.js'
export { EchoResponder } from './links/echo-train.js'
export { Fabric } from './links/fabric.js'
export type { FrameStream, LinkAddresses, LinkCounts, LinkEnd } from './links/frame-stream.js'
export type { InterfaceFacts, InterfaceKind } from './links/interface-facts.js'
export {
  answerMeasurements,
  type Bandwidth,
  LinkMeter,
  type LinkReport,
  measureLink,
} from './links/measure.js'
export { openTransport, type TransportOptions } from './links/open-transport.js'
export type { LinkOptions } from './links/options.js'
export type { Address, PathStats } from './links/pipe.js'
export type { Frame } from './links/record.js'
export type { RoundTrips } from './links/statistics.js'
export type {
  ConnectOptions,
  ListenOptions,
  StreamListener,
  StreamTransport,
  TransportName,
} from './links/transport.js'
export { ClusterNode } from './node/cluster-node.js'
export type {
  ClusterEvent,
  ClusterEvents,
  ClusterState,
  NodeState,
  PressureState,
} from './node/cluster-state.js'
export { fleetOf, type LiveFleet } from './node/live-fleet.js'
export type { MembershipOptions } from './node/membership.js'
export type { NodeAudit, NodeAuditEntry } from './node/node-audit.js'
export type { NodeJobsOptions } from './node/node-jobs.js'
export type { ClusterNodeOptions } from './node/node-options.js'
export type { PressureWatchOptions } from './node/pressure-watch.js'
export type { Route } from './node/routes.js'
export type { Objective } from './placement/chain.js'
export { InfeasibleError, type Violation } from './placement/constraints.js'
export type { ExpertCost, LayerCost, Load, ModelCosts, OperatorUse } from './placement/costs.js'
export { type Fleet, type FleetDevice, readFleet } from './placement/fleet.js'
export type {
  DeviceEntry,
  DeviceSpec,
  FleetFile,
  LinkSpec,
  NodeEntry,
  OperatorSet as FleetOperatorSet,
} from './placement/fleet-file.js'
export type { GraphShapes } from './placement/graph-costs.js'
export { type ModelCostsOptions, modelCosts } from './placement/model-costs.js'
export { type MoveDecision, type MoveOptions, shouldMove } from './placement/move.js'
export { type Placement, type PlaceOptions, place, type Stage } from './placement/place.js'
export type { CurrentPlacement } from './placement/problem.js'
export { type Help, type PlacementReport, reportPlacement } from './placement/report.js'
export { Pipeline, type PipelineEvent } from './stages/pipeline.js'
export type { StageOptions } from './stages/questions.js'
export { PipelineSequence } from './stages/sequence.js'
export type { StagePlan, StageProgress } from './stages/stage-place.js'
export type { SumsChoice } from './stages/sum-choices.js'
export { ClusterText, type StagedTextOptions, type TextStage } from './text/load-text.js'
export { AuditLog, type AuditOptions } from './trust/audit.js'
export type { LogOwner } from './trust/audit-files.js'
export type { AuditEvent, AuditOp } from './trust/audit-record.js'
export {
  type CertificateRequest,
  ClusterAuthority,
  type Issued,
  type IssuedCertificate,
} from './trust/authority.js'
export type { NodeNames } from './trust/certificates.js'
export {
  loadCredentials,
  type NodeCredentials,
  type Peer,
  type PeerPolicy,
  saveCredentials,
} from './trust/credentials.js'
export { clusterHome } from './trust/home.js'
export type { JoinCode } from './trust/invitations.js'
export { type JoinOptions, joinCluster } from './trust/join.js'
export { NodeIdentity } from './trust/node-identity.js'
export { type Rate, type RateKind, RateLimits, type Taken } from './trust/rate-limits.js'
export { type Refusal, type RefusalKind, Refusals } from './trust/refusals.js'
export { Revocations, type Revoked } from './trust/revocations.js'
export type { SignedRevocations } from './trust/signed-revocations.js'
export {
  type Grant,
  type ListedToken,
  type MadeToken,
  maxTokenMinutes,
  type TokenClaims,
  TokenGate,
  type TokenGateOptions,
  TokenIssuer,
  type TokenRequest,
  type TokenScope,
  thumbprintOf,
  tokenScopes,
} from './trust/tokens.js'
export {
  type AuditProblem,
  type AuditProblemKind,
  type AuditReport,
  type VerifyAuditOptions,
  verifyAudit,
} from './trust/verify-audit.js'
export type { SigningNode } from './trust/witness.js'
export { type ChunkChannel, ChunkLink, serveChunks } from './weights/chunk-link.js'
export type { SourceReport } from './weights/chunk-transfer.js'
export {
  type BlobReference,
  type FetchChunksOptions,
  type FetchProgress,
  fetchBlob,
} from './weights/fetch-chunks.js'
export { type FetchedFile, type FetchOptions, fetchFile } from './weights/fetch-file.js'
export { fetchTensors } from './weights/fetch-tensors.js'
export {
  type ByteRange,
  type FileManifest,
  type ManifestOptions,
  manifestOf,
  parseManifest,
} from './weights/manifest.js'
export { type ChunkSource, fileSource, urlSource } from './weights/sources.js'
export type { StoredFile } from './weights/stored-files.js'
export { WeightStore, type WeightStoreOptions } from './weights/weight-store.js'
