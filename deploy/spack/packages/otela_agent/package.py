import os
import platform

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class OtelaAgent(Package):
    """Serves language models from the jobs of a cluster through a gateway of OpenTela."""

    homepage = "https://github.com/opentela-ai/OpenTela"

    # The gateway of your institution, or the directory of a release.
    release = os.environ.get("OTELA_RELEASE", "https://gw.example.org/install")
    names = {"x86_64": "x64", "aarch64": "arm64"}

    # `spack checksum` does not know single files: write the digest from SHA256SUMS of the release.
    version(
        "0.1.0",
        url=f"{release}/otela-agent-linux-{names.get(platform.machine(), 'x64')}",
        sha256=os.environ.get("OTELA_AGENT_SHA256"),
        expand=False,
    )

    license("Apache-2.0")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install(self.stage.archive_file, prefix.bin.join("otela-agent"))
        set_executable(prefix.bin.join("otela-agent"))

    def setup_run_environment(self, env):
        env.set("OTELA_GATEWAY", os.environ.get("OTELA_GATEWAY", "https://gw.example.org"))
