// control-structs.ts: openpilot: its state, lead cars, plans, and what it learns about the car.
import { laneChangeDirections, laneChangeStates } from './camera-structs.js'
import { longControlStates } from './car-structs.js'
import { at, bool, each, f32, f32s, i8, i32, oneOf, struct, text, u16, u64 } from './fields.js'

/** The state of the controllers; before 2024 that of openpilot as a whole, too. */
export const controlsState = struct({
  /** Nanoseconds since boot. */
  longitudinalPlanMonoTime: u64(832),
  /** Nanoseconds since boot. */
  lateralPlanMonoTime: u64(1280),
  longControlState: oneOf(720, ...longControlStates),
  upAccelCmd: f32(128),
  uiAccelCmd: f32(160),
  ufAccelCmd: f32(992),
  /** 1/m. */
  curvature: f32(1088),
  /** 1/m. */
  desiredCurvature: f32(1408),
  forceDecel: bool(713),
  /** Until 2024; later in selfdriveState. */
  enabled: bool(704),
  /** Until 2024; later in selfdriveState. */
  active: bool(707),
  /** Until 2024; later in selfdriveState. */
  experimentalMode: bool(715),
  /** km/h, until 2024; later in carState. */
  vCruise: f32(736),
  /** m/s^2, until 2024. */
  aTarget: f32(1056),
  alertText1: text(1),
  alertText2: text(2),
  alertType: text(3),
})

/** The state of openpilot. */
export const selfdriveState = struct({
  state: oneOf(0, 'disabled', 'preEnabled', 'enabled', 'softDisabling', 'overriding'),
  enabled: bool(16),
  active: bool(17),
  engageable: bool(18),
  experimentalMode: bool(19),
  personality: oneOf(80, 'aggressive', 'standard', 'relaxed'),
  alertText1: text(0),
  alertText2: text(1),
  alertType: text(2),
  alertStatus: oneOf(32, 'normal', 'userPrompt', 'critical'),
  alertSize: oneOf(48, 'none', 'small', 'mid', 'full'),
})

/** A lead car: device frame, y to the left. */
const radarLead = struct({
  /** Whether there is one; `status` until 2026. */
  present: bool(321),
  /** m. */
  dRel: f32(0),
  /** m. */
  yRel: f32(32),
  /** m/s. */
  vRel: f32(64),
  /** m/s. */
  vLead: f32(128),
  /** m/s. */
  vLeadK: f32(256),
  /** m/s^2. */
  aLeadK: f32(288),
  aLeadTau: f32(352),
  modelProb: f32(384),
  radar: bool(322),
})

/** Lead cars. */
export const radarState = struct({
  leadOne: at(1, radarLead),
  leadTwo: at(2, radarLead),
  /** Nanoseconds since boot. */
  mdMonoTime: u64(128),
})

/** Points of the radar. */
export const radarTracks = struct({
  points: each(
    1,
    struct({
      trackId: u64(0),
      /** m. */
      dRel: f32(64),
      /** m. */
      yRel: f32(96),
      /** m/s. */
      vRel: f32(128),
    }),
  ),
})

/** Speeds that are planned. */
export const longitudinalPlan = struct({
  /** Nanoseconds since boot. */
  modelMonoTime: u64(192),
  hasLead: bool(2),
  fcw: bool(3),
  longitudinalPlanSource: oneOf(16, 'cruise', 'lead0', 'lead1', 'lead2', 'e2e'),
  /** m/s. */
  speeds: f32s(4),
  /** m/s^2. */
  accels: f32s(3),
  /** m/s^3. */
  jerks: f32s(5),
  /** m/s^2. */
  aTarget: f32(416),
  shouldStop: bool(12),
  allowThrottle: bool(13),
  allowBrake: bool(14),
  /** Seconds. */
  solverExecutionTime: f32(608),
})

/** The path that was planned, until 2024. */
export const lateralPlan = struct({
  /** Nanoseconds since boot. */
  modelMonoTime: u64(512),
  mpcSolutionValid: bool(160),
  useLaneLines: bool(166),
  desire: oneOf(
    176,
    'none',
    'turnLeft',
    'turnRight',
    'laneChangeLeft',
    'laneChangeRight',
    'keepLeft',
    'keepRight',
  ),
  laneChangeState: oneOf(256, ...laneChangeStates),
  laneChangeDirection: oneOf(272, ...laneChangeDirections),
  dPathPoints: f32s(4),
  /** rad. */
  psis: f32s(5),
  /** 1/m. */
  curvatures: f32s(6),
  curvatureRates: f32s(7),
  /** Seconds. */
  solverExecutionTime: f32(448),
})

/** What stands behind an event of openpilot, such as an alert; the codes of ordinals 68 and 134 differ. */
export const onroadEvent = struct({
  code: u16(0),
  enable: bool(16),
  noEntry: bool(17),
  warning: bool(18),
  userDisable: bool(19),
  softDisable: bool(20),
  immediateDisable: bool(21),
  preEnable: bool(22),
  permanent: bool(23),
  overrideLongitudinal: bool(24),
  overrideLateral: bool(25),
})

/** What the car is learned to be. */
export const liveParameters = struct({
  valid: bool(0),
  sensorValid: bool(1),
  posenetValid: bool(2),
  /** rad/s. */
  gyroBias: f32(32),
  angleOffsetDeg: f32(64),
  angleOffsetAverageDeg: f32(96),
  stiffnessFactor: f32(128),
  steerRatio: f32(160),
  /** m/s. */
  posenetSpeed: f32(224),
  angleOffsetFastStd: f32(256),
  angleOffsetAverageStd: f32(288),
  stiffnessFactorStd: f32(320),
  steerRatioStd: f32(352),
  /** rad. */
  roll: f32(384),
})

/** How the car is learned to answer to torque. */
export const liveTorqueParameters = struct({
  liveValid: bool(0),
  useParams: bool(1),
  latAccelFactorRaw: f32(32),
  latAccelOffsetRaw: f32(64),
  frictionCoefficientRaw: f32(96),
  latAccelFactorFiltered: f32(128),
  latAccelOffsetFiltered: f32(160),
  frictionCoefficientFiltered: f32(192),
  totalBucketPoints: f32(224),
  decay: f32(256),
  maxResets: f32(288),
  version: i32(320),
})

/** How late the car is learned to answer. */
export const liveDelay = struct({
  /** s. */
  lateralDelay: f32(0),
  /** s. */
  lateralDelayEstimate: f32(96),
  lateralDelayEstimateStd: f32(128),
  validBlocks: i32(32),
  status: oneOf(64, 'unestimated', 'estimated', 'invalid'),
  calPerc: i8(80),
})

/** What is seen of the driver, until 2026. */
export const driverMonitoringStateOld = struct({
  faceDetected: bool(0),
  isDistracted: bool(1),
  /** Whether the driver sits on the right, in countries that drive on the left. */
  isRHD: bool(2),
  isActiveMode: bool(6),
  /** 1: attentive; 0: not. */
  awarenessStatus: f32(32),
})

/** What is seen of the driver. */
export const driverMonitoringState = struct({
  lockout: bool(0),
  alwaysOn: bool(1),
  /** Whether the driver sits on the right, in countries that drive on the left. */
  isRHD: bool(3),
})
