//! The fields of `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), with the types in Go's messages.

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum KubeletKind {
    /// `true` or `false`.
    Bool,
    /// A whole number, of `int32`, `int64` or another type of Go.
    Int(Width, &'static str),
    /// A number.
    Float,
    /// A text; the name is Go's.
    Text(&'static str),
    /// A duration such as `1m30s`.
    Duration,
    /// A duration, or a number of nanoseconds.
    TimeOrDuration,
    /// A quantity such as `1Gi`.
    Quantity,
    /// A list, with Go's name.
    List(&'static KubeletKind, &'static str),
    /// A map with names as keys, with Go's name.
    Map(&'static KubeletKind, &'static str),
    /// Fields.
    Struct(&'static Struct),
}

/// The bounds of a whole number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    /// 32 bits, signed.
    Signed32,
    /// 64 bits, signed.
    Signed64,
    /// 32 bits, without a sign.
    Unsigned32,
}

/// A type with fields.
#[derive(Debug)]
pub(super) struct Struct {
    /// Go's name, with its package.
    pub(super) name: &'static str,
    /// The fields.
    pub(super) fields: &'static [KubeletField],
}

impl Struct {
    /// The name without the package.
    pub(super) fn short_name(&self) -> &'static str {
        let (_, name) = self.name.rsplit_once('.').unwrap_or(("", self.name));
        name
    }

    /// Returns the field of a key, by exact name or else ignoring case, like Go.
    pub(super) fn field(&self, key: &str) -> Option<&'static KubeletField> {
        let same = |field: &&KubeletField| field.name == key;
        let folded = |field: &&KubeletField| field.name.eq_ignore_ascii_case(key);
        let exact = self.fields.iter().find(same);
        exact.or_else(|| self.fields.iter().find(folded))
    }
}

/// A field of a type.
#[derive(Debug, Clone, Copy)]
pub(super) struct KubeletField {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// Its type.
    pub(super) kind: KubeletKind,
    /// It distinguishes a missing value from an empty one.
    pub(super) pointer: bool,
    /// An empty value is left out (`omitempty`).
    pub(super) omits_empty: bool,
    /// The embedded type that has the field, which Go's messages name before it.
    pub(super) embedded: Option<&'static str>,
}

impl KubeletField {
    /// Returns true if the field is in every file: to Go, structs are never empty.
    pub(super) fn is_always(&self) -> bool {
        let is_struct = matches!(
            self.kind,
            KubeletKind::Duration
                | KubeletKind::TimeOrDuration
                | KubeletKind::Quantity
                | KubeletKind::Struct(_)
        );
        !self.pointer && (is_struct || !self.omits_empty)
    }

    const fn always(mut self) -> Self {
        self.omits_empty = false;
        self
    }

    const fn of(mut self, embedded: &'static str) -> Self {
        self.embedded = Some(embedded);
        self
    }
}

const fn plain(name: &'static str, kind: KubeletKind) -> KubeletField {
    KubeletField {
        name,
        kind,
        pointer: false,
        omits_empty: true,
        embedded: None,
    }
}

const fn pointer(name: &'static str, kind: KubeletKind) -> KubeletField {
    KubeletField {
        name,
        kind,
        pointer: true,
        omits_empty: true,
        embedded: None,
    }
}

const BOOL: KubeletKind = KubeletKind::Bool;
const INT32: KubeletKind = KubeletKind::Int(Width::Signed32, "int32");
const INT64: KubeletKind = KubeletKind::Int(Width::Signed64, "int64");
const LEVEL: KubeletKind = KubeletKind::Int(Width::Unsigned32, "v1.VerbosityLevel");
const TEXT: KubeletKind = KubeletKind::Text("string");
const DURATION: KubeletKind = KubeletKind::Duration;
const TEXTS: KubeletKind = KubeletKind::List(&TEXT, "[]string");
const INTS: KubeletKind = KubeletKind::List(&INT32, "[]int32");
const MAP: KubeletKind = KubeletKind::Map(&TEXT, "map[string]string");
const META: &str = "TypeMeta";
const OUTPUT: &str = "OutputRoutingOptions";

/// The whole configuration.
pub(super) static KUBELET: Struct = Struct {
    name: "v1beta1.KubeletConfiguration",
    fields: &[
        plain("kind", TEXT).of(META),
        plain("apiVersion", TEXT).of(META),
        pointer("enableServer", BOOL),
        plain("staticPodPath", TEXT),
        plain("podLogsDir", TEXT),
        plain("syncFrequency", DURATION),
        plain("fileCheckFrequency", DURATION),
        plain("httpCheckFrequency", DURATION),
        plain("staticPodURL", TEXT),
        plain(
            "staticPodURLHeader",
            KubeletKind::Map(&TEXTS, "map[string][]string"),
        ),
        plain("address", TEXT),
        plain("port", INT32),
        plain("readOnlyPort", INT32),
        plain("tlsCertFile", TEXT),
        plain("tlsPrivateKeyFile", TEXT),
        plain("tlsCipherSuites", TEXTS),
        plain("tlsCurvePreferences", INTS),
        plain("tlsMinVersion", TEXT),
        plain("rotateCertificates", BOOL),
        plain("serverTLSBootstrap", BOOL),
        plain("authentication", KubeletKind::Struct(&AUTHENTICATION)).always(),
        plain("authorization", KubeletKind::Struct(&AUTHORIZATION)).always(),
        pointer("registryPullQPS", INT32),
        plain("registryBurst", INT32),
        plain(
            "imagePullCredentialsVerificationPolicy",
            KubeletKind::Text("v1beta1.ImagePullCredentialsVerificationPolicy"),
        ),
        plain("preloadedImagesVerificationAllowlist", TEXTS),
        pointer("eventRecordQPS", INT32),
        plain("eventBurst", INT32),
        pointer("enableDebuggingHandlers", BOOL),
        plain("enableContentionProfiling", BOOL),
        pointer("healthzPort", INT32),
        plain("healthzBindAddress", TEXT),
        pointer("oomScoreAdj", INT32),
        plain("clusterDomain", TEXT),
        plain("clusterDNS", TEXTS),
        plain("streamingConnectionIdleTimeout", DURATION),
        plain("nodeStatusUpdateFrequency", DURATION),
        plain("nodeStatusReportFrequency", DURATION),
        plain("nodeLeaseDurationSeconds", INT32),
        plain("imageMinimumGCAge", DURATION),
        plain("imageMaximumGCAge", DURATION),
        pointer("imageGCHighThresholdPercent", INT32),
        pointer("imageGCLowThresholdPercent", INT32),
        plain("volumeStatsAggPeriod", DURATION),
        plain("kubeletCgroups", TEXT),
        plain("systemCgroups", TEXT),
        plain("cgroupRoot", TEXT),
        pointer("cgroupsPerQOS", BOOL),
        plain("cgroupDriver", TEXT),
        plain("cpuManagerPolicy", TEXT),
        pointer("singleProcessOOMKill", BOOL),
        plain("cpuManagerPolicyOptions", MAP),
        plain("cpuManagerReconcilePeriod", DURATION),
        plain("memoryManagerPolicy", TEXT),
        plain("topologyManagerPolicy", TEXT),
        plain("topologyManagerScope", TEXT),
        plain("topologyManagerPolicyOptions", MAP),
        plain("qosReserved", MAP),
        plain("runtimeRequestTimeout", DURATION),
        plain("hairpinMode", TEXT),
        plain("maxPods", INT32),
        plain("podCIDR", TEXT),
        pointer("podPidsLimit", INT64),
        pointer("resolvConf", TEXT),
        plain("runOnce", BOOL),
        pointer("cpuCFSQuota", BOOL),
        pointer("cpuCFSQuotaPeriod", DURATION),
        pointer("nodeStatusMaxImages", INT32),
        plain("maxOpenFiles", INT64),
        plain("contentType", TEXT),
        pointer("kubeAPIQPS", INT32),
        plain("kubeAPIBurst", INT32),
        pointer("serializeImagePulls", BOOL),
        pointer("maxParallelImagePulls", INT32),
        plain("evictionHard", MAP),
        plain("evictionSoft", MAP),
        plain("evictionSoftGracePeriod", MAP),
        plain("evictionPressureTransitionPeriod", DURATION),
        plain("evictionMaxPodGracePeriod", INT32),
        plain("evictionMinimumReclaim", MAP),
        pointer("mergeDefaultEvictionSettings", BOOL),
        plain("podsPerCore", INT32),
        pointer("enableControllerAttachDetach", BOOL),
        plain("protectKernelDefaults", BOOL),
        pointer("makeIPTablesUtilChains", BOOL),
        pointer("iptablesMasqueradeBit", INT32),
        pointer("iptablesDropBit", INT32),
        plain("featureGates", KubeletKind::Map(&BOOL, "map[string]bool")),
        pointer("failSwapOn", BOOL),
        plain("memorySwap", KubeletKind::Struct(&MEMORY_SWAP)),
        plain("containerLogMaxSize", TEXT),
        pointer("containerLogMaxFiles", INT32),
        pointer("containerLogMaxWorkers", INT32),
        pointer("containerLogMonitorInterval", DURATION),
        plain(
            "configMapAndSecretChangeDetectionStrategy",
            KubeletKind::Text("v1beta1.ResourceChangeDetectionStrategy"),
        ),
        plain("systemReserved", MAP),
        plain("kubeReserved", MAP),
        plain("reservedSystemCPUs", TEXT),
        plain("showHiddenMetricsForVersion", TEXT),
        plain("systemReservedCgroup", TEXT),
        plain("kubeReservedCgroup", TEXT),
        plain("enforceNodeAllocatable", TEXTS),
        plain("allowedUnsafeSysctls", TEXTS),
        plain("volumePluginDir", TEXT),
        plain("providerID", TEXT),
        plain("kernelMemcgNotification", BOOL),
        plain("logging", KubeletKind::Struct(&LOGGING)),
        pointer("enableSystemLogHandler", BOOL),
        pointer("enableSystemLogQuery", BOOL),
        plain("shutdownGracePeriod", DURATION),
        plain("shutdownGracePeriodCriticalPods", DURATION),
        plain(
            "shutdownGracePeriodByPodPriority",
            KubeletKind::List(
                &KubeletKind::Struct(&SHUTDOWN),
                "[]v1beta1.ShutdownGracePeriodByPodPriority",
            ),
        ),
        plain("crashLoopBackOff", KubeletKind::Struct(&CRASH_LOOP)),
        plain(
            "reservedMemory",
            KubeletKind::List(&KubeletKind::Struct(&MEMORY), "[]v1beta1.MemoryReservation"),
        ),
        pointer("enableProfilingHandler", BOOL),
        pointer("enableDebugFlagsHandler", BOOL),
        pointer("seccompDefault", BOOL),
        pointer("memoryThrottlingFactor", KubeletKind::Float),
        plain(
            "memoryReservationPolicy",
            KubeletKind::Text("v1beta1.MemoryReservationPolicy"),
        ),
        plain(
            "registerWithTaints",
            KubeletKind::List(&KubeletKind::Struct(&TAINT), "[]v1.Taint"),
        ),
        pointer("registerNode", BOOL),
        pointer("tracing", KubeletKind::Struct(&TRACING)),
        pointer("localStorageCapacityIsolation", BOOL),
        plain("containerRuntimeEndpoint", TEXT).always(),
        plain("imageServiceEndpoint", TEXT),
        pointer("failCgroupV1", BOOL),
        pointer("userNamespaces", KubeletKind::Struct(&USER_NAMESPACES)),
    ],
};

static AUTHENTICATION: Struct = Struct {
    name: "v1beta1.KubeletAuthentication",
    fields: &[
        plain("x509", KubeletKind::Struct(&X509)),
        plain("webhook", KubeletKind::Struct(&WEBHOOK)),
        plain("anonymous", KubeletKind::Struct(&ANONYMOUS)),
    ],
};

static X509: Struct = Struct {
    name: "v1beta1.KubeletX509Authentication",
    fields: &[plain("clientCAFile", TEXT)],
};

static WEBHOOK: Struct = Struct {
    name: "v1beta1.KubeletWebhookAuthentication",
    fields: &[pointer("enabled", BOOL), plain("cacheTTL", DURATION)],
};

static ANONYMOUS: Struct = Struct {
    name: "v1beta1.KubeletAnonymousAuthentication",
    fields: &[pointer("enabled", BOOL)],
};

static AUTHORIZATION: Struct = Struct {
    name: "v1beta1.KubeletAuthorization",
    fields: &[
        plain(
            "mode",
            KubeletKind::Text("v1beta1.KubeletAuthorizationMode"),
        ),
        plain("webhook", KubeletKind::Struct(&AUTHORIZATION_WEBHOOK)),
    ],
};

static AUTHORIZATION_WEBHOOK: Struct = Struct {
    name: "v1beta1.KubeletWebhookAuthorization",
    fields: &[
        plain("cacheAuthorizedTTL", DURATION),
        plain("cacheUnauthorizedTTL", DURATION),
    ],
};

static MEMORY_SWAP: Struct = Struct {
    name: "v1beta1.MemorySwapConfiguration",
    fields: &[plain("swapBehavior", TEXT)],
};

static LOGGING: Struct = Struct {
    name: "v1.LoggingConfiguration",
    fields: &[
        plain("format", TEXT),
        plain("flushFrequency", KubeletKind::TimeOrDuration).always(),
        plain("verbosity", LEVEL).always(),
        plain(
            "vmodule",
            KubeletKind::List(&KubeletKind::Struct(&VMODULE), "v1.VModuleConfiguration"),
        ),
        plain("options", KubeletKind::Struct(&FORMATS)),
    ],
};

static VMODULE: Struct = Struct {
    name: "v1.VModuleItem",
    fields: &[
        plain("filePattern", TEXT).always(),
        plain("verbosity", LEVEL).always(),
    ],
};

static FORMATS: Struct = Struct {
    name: "v1.FormatOptions",
    fields: &[
        plain("text", KubeletKind::Struct(&TEXT_OPTIONS)),
        plain("json", KubeletKind::Struct(&JSON_OPTIONS)),
    ],
};

static TEXT_OPTIONS: Struct = Struct {
    name: "v1.TextOptions",
    fields: OUTPUT_FIELDS,
};

static JSON_OPTIONS: Struct = Struct {
    name: "v1.JSONOptions",
    fields: OUTPUT_FIELDS,
};

const OUTPUT_FIELDS: &[KubeletField] = &[
    plain("splitStream", BOOL).of(OUTPUT),
    plain("infoBufferSize", KubeletKind::Quantity).of(OUTPUT),
];

static SHUTDOWN: Struct = Struct {
    name: "v1beta1.ShutdownGracePeriodByPodPriority",
    fields: &[
        plain("priority", INT32).always(),
        plain("shutdownGracePeriodSeconds", INT64).always(),
    ],
};

static CRASH_LOOP: Struct = Struct {
    name: "v1beta1.CrashLoopBackOffConfig",
    fields: &[pointer("maxContainerRestartPeriod", DURATION)],
};

static MEMORY: Struct = Struct {
    name: "v1beta1.MemoryReservation",
    fields: &[
        plain("numaNode", INT32).always(),
        plain(
            "limits",
            KubeletKind::Map(&KubeletKind::Quantity, "v1.ResourceList"),
        )
        .always(),
    ],
};

static TAINT: Struct = Struct {
    name: "v1.Taint",
    fields: &[
        plain("key", TEXT).always(),
        plain("value", TEXT),
        plain("effect", KubeletKind::Text("v1.TaintEffect")).always(),
        pointer("timeAdded", TEXT),
    ],
};

static TRACING: Struct = Struct {
    name: "v1.TracingConfiguration",
    fields: &[
        pointer("endpoint", TEXT),
        pointer("samplingRatePerMillion", INT32),
    ],
};

static USER_NAMESPACES: Struct = Struct {
    name: "v1beta1.UserNamespaces",
    fields: &[pointer("idsPerPod", INT64)],
};
