// The app as a container on Container Apps, and the registry that its image lies in.
param name string
param environmentName string
param registryName string
param workspaceName string
param location string
param tags object

@description('Resource id of the app\'s identity, and its principal.')
param identityId string
param principalId string

@description('In the registry, as name:tag; empty = no app yet, so that the image can be pushed first.')
param image string

@description('The subnet of the environment; empty = none.')
param subnetId string

param minReplicas int
param maxReplicas int

@description('All of the app\'s settings, from settings.bicep.')
param appSettings object

@description('Settings whose values are secrets in Key Vault: the setting\'s name, and the secret\'s address.')
param secretSettings object

// A container reads no `@Microsoft.KeyVault(...)`: the platform does, into secrets of the app with names of their own.
var secrets = map(items(secretSettings), setting => {
  variable: setting.key
  name: toLower(replace(setting.key, '_', '-'))
  uri: setting.value
})

var roles = {
  images: '7f951dda-4ed3-4680-a7ca-43fe172d538d' // AcrPull
}

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: registryName
  location: location
  tags: tags
  sku: { name: 'Basic' }
  properties: {
    adminUserEnabled: false
  }
}

resource access 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, principalId, roles.images)
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.images)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' existing = {
  name: workspaceName
}

resource managedEnvironment 'Microsoft.App/managedEnvironments@2025-07-01' = {
  name: environmentName
  location: location
  tags: tags
  properties: {
    appLogsConfiguration: {
      destination: 'log-analytics'
      logAnalyticsConfiguration: {
        customerId: workspace.properties.customerId
        sharedKey: workspace.listKeys().primarySharedKey
      }
    }
    vnetConfiguration: empty(subnetId) ? null : { infrastructureSubnetId: subnetId }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
  }
}

resource app 'Microsoft.App/containerApps@2025-07-01' = if (!empty(image)) {
  name: name
  location: location
  tags: tags
  // The platform derives the scale rules from the app's triggers.
  kind: 'functionapp'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    environmentId: managedEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      // One revision at a time: two would take each other's turns.
      activeRevisionsMode: 'Single'
      ingress: {
        external: true
        targetPort: 80
        allowInsecure: false
      }
      secrets: map(secrets, secret => { name: secret.name, keyVaultUrl: secret.uri, identity: identityId })
      registries: [
        {
          server: registry.properties.loginServer
          identity: identityId
        }
      ]
    }
    template: {
      containers: [
        {
          name: 'app'
          image: '${registry.properties.loginServer}/${image}'
          env: concat(
            map(items(appSettings), setting => { name: setting.key, value: setting.value }),
            map(secrets, secret => { name: secret.variable, secretRef: secret.name })
          )
          resources: {
            cpu: json('1')
            memory: '2Gi'
          }
          probes: [
            {
              type: 'Liveness'
              tcpSocket: { port: 80 }
              initialDelaySeconds: 30
            }
            {
              type: 'Readiness'
              httpGet: { path: '/api/health', port: 80 }
              periodSeconds: 30
            }
          ]
        }
      ]
      scale: {
        minReplicas: minReplicas
        maxReplicas: maxReplicas
      }
    }
  }
  dependsOn: [access]
}

output registry string = registry.name
output url string = empty(image) ? '' : 'https://${app!.properties.configuration.ingress.fqdn}'
